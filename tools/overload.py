"""Simulates admission control and scheduling under load: `python -m tools.overload`.

Prints the tables of docs/load.md, for three models:

- the share of questions that is refused, and the share that would wait longer than the bound without admission
  control, for several sizes of questions;
- clients in closed loops, also of a service that answers in the order of arrival, and beside very large questions;
- three times the capacity;
- the load that several replicas can serve.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from cerberank_service.engine.admission import Admission, Offer, retry_after
from cerberank_service.engine.cost import StageSpeeds
from cerberank_service.engine.scheduler import Scheduler, Step
from cerberank_service.errors import ServiceError
from cerberank_service.settings import Settings
from cerberank_service.versions.warm_up import LONGEST_STEP_SECONDS, PROCESSOR_TOKENS

TOKENS = 36
"""Tokens of every candidate."""
BOUND: float = Settings.model_fields["queue_seconds"].default
THINK = 0.005
"""Seconds between an answer and the next question of a client in a closed loop."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A model on two cores: the work of its stages, and the candidates that it scores per second without drops."""

    work: tuple[float, ...]
    rate: float


SHAPES = {
    "cerberank-mini, int8": Shape((2.0, 2.0, 1.5), 600.0),
    "MiniLM-L6, fp32": Shape((1.0,), 274.0),
    "B11 3H1, int8": Shape((4.0, 2.0, 2.0, 3.0), 75.0),
}
"""Models with their rates on two otherwise idle cores. The first two rates were measured; the third is assumed, with an
eighth of the first model's rate."""
MIX = {4: 0.3, 20: 0.3, 50: 0.2, 200: 0.2}
"""Sizes of questions, with their shares."""
LOOPS = [[200]] * 5 + [[50]] * 5 + [[4]] * 6
"""Sixteen clients in a closed loop, given by the numbers of candidates from which each question's is drawn."""
DRAWN = [[4, 4, 50, 200]] * 16
"""Sixteen clients in a closed loop whose questions all are of random size."""
DRAWN_RATES = {"two cores": 400.0, "one of them busy": 200.0}
"""Candidates of 20 words that cerberank-mini scores per second, as assumed for `DRAWN`."""
DRAWN_SECONDS, DRAWN_RUNS = 20.0, 20


@dataclass(frozen=True, slots=True)
class Answered:
    """A question that was answered."""

    candidates: int
    arrival: float
    queued: float
    """Seconds in the queue: the time until the answer minus the question's compute time alone."""
    alone: float
    """Seconds of its compute time alone."""

    @property
    def latency(self) -> float:
        """Seconds from arrival to answer."""
        return self.queued + self.alone


@dataclass
class Replica:
    """One service. A step takes its predicted time, times a random factor between the two values of `slowness`."""

    shape: Shape
    bound: float = BOUND
    slowness: tuple[float, float] = (1.0, 1.0)
    answers: list[Answered] = field(default_factory=list)
    refusals: list[tuple[int, float]] = field(default_factory=list)
    """Candidates and `Retry-After` of each refused question."""

    def __post_init__(self) -> None:
        total, work = sum(self.shape.work), self.shape.work
        seconds = [each / total / self.shape.rate / TOKENS for each in work]
        least, most = PROCESSOR_TOKENS
        self.step_tokens = max(least, min(int(LONGEST_STEP_SECONDS / max(seconds)), most))
        self.speeds = StageSpeeds(work, self.step_tokens)
        for stage, each in enumerate(seconds):
            self.speeds.observe(stage, 10**6, 10**6 * each)
        self.admission = Admission(self.speeds, self.bound)
        self.scheduler = Scheduler(self.step_tokens, work)
        self.open: dict[int, tuple[float, int, object]] = {}
        """Arrival, candidates and client of each question in progress."""
        self.ends = inf
        """The time at which the running step ends."""
        self._left: dict[int, int] = {}
        self._numbers = 0
        self._step: Step | None = None
        self._random = random.Random(0)

    def offer(self, now: float, candidates: int, client: object = None) -> int:
        """Offer a question; returns `Retry-After`, or 0 if it is accepted."""
        tokens = (float(candidates * TOKENS),) * len(self.shape.work)
        offer = Offer(tokens=candidates * TOKENS, stage_tokens=tokens, received=now)
        try:
            self.admission.check(offer, now)
        except ServiceError as error:
            wait = error.retry_after or 1
            self.refusals.append((candidates, wait))
            return wait
        key, self._numbers = self._numbers, self._numbers + 1
        self.admission.enter(key, offer)
        self.scheduler.add(key, tokens)
        self.scheduler.queue(key, 0, np.arange(candidates), np.full(candidates, TOKENS))
        self.open[key], self._left[key] = (now, candidates, client), candidates
        if self._step is None:
            self._begin(now)
        return 0

    def _begin(self, now: float) -> None:
        self._step, self.ends = self.scheduler.next_step(), inf
        if self._step is not None:
            seconds = self._step.tokens * self.speeds.seconds_per_token[self._step.stage]
            self.ends = now + self._random.uniform(*self.slowness) * seconds

    def end_step(self) -> list[tuple[int, object]]:
        """End the running step and begin the next; returns candidates and client of each answered question."""
        assert self._step is not None
        step, now, done = self._step, self.ends, []
        for key, rows in step.parts:
            self.admission.ran(key, step.stage, len(rows) * TOKENS)
            if step.stage + 1 < len(self.shape.work):
                self.scheduler.queue(key, step.stage + 1, rows, np.full(len(rows), TOKENS))
                continue
            self._left[key] -= len(rows)
            if not self._left[key]:
                self.scheduler.remove(key, answered=True)
                self.admission.leave(key)
                came, candidates, client = self.open.pop(key)
                alone = candidates / self.shape.rate
                self.answers.append(Answered(candidates, came, now - came - alone, alone))
                done.append((candidates, client))
        self._begin(now)
        return done


@dataclass
class InOrder:
    """A service that answers one question after the other, in the order of arrival, with the same bound."""

    shape: Shape
    bound: float = BOUND
    answers: list[Answered] = field(default_factory=list)
    refusals: list[tuple[int, float]] = field(default_factory=list)
    open: deque[tuple[float, float, int, object]] = field(default_factory=deque)
    """End, arrival, candidates and client of each accepted question."""

    @property
    def ends(self) -> float:
        """The time at which the running question ends."""
        return self.open[0][0] if self.open else inf

    def offer(self, now: float, candidates: int, client: object = None) -> int:
        """Offer a question; returns `Retry-After`, or 0 if it is accepted."""
        begins = max(now, self.open[-1][0]) if self.open else now
        if begins - now > self.bound:
            self.refusals.append((candidates, retry_after(begins - now - self.bound)))
            return retry_after(begins - now - self.bound)
        self.open.append((begins + candidates / self.shape.rate, now, candidates, client))
        return 0

    def end_step(self) -> list[tuple[int, object]]:
        """End the running question and begin the next; returns candidates and client of the one that was answered."""
        end, came, candidates, client = self.open.popleft()
        alone = candidates / self.shape.rate
        self.answers.append(Answered(candidates, came, end - came - alone, alone))
        return [(candidates, client)]


def arrivals(rate: float, seconds: float, seed: int, mix: Mapping[int, float] = MIX) -> list[tuple[float, int, int]]:
    """Poisson arrivals of `rate` candidates per second: (time, number, candidates), in order."""
    rng = random.Random(seed)
    questions = rate / sum(size * share for size, share in mix.items())
    coming: list[tuple[float, int, int]] = []
    moment = rng.expovariate(questions)
    while moment < seconds:
        coming.append((moment, len(coming), rng.choices(list(mix), list(mix.values()))[0]))
        moment += rng.expovariate(questions)
    return coming


def serve(
    replicas: Sequence[Replica], coming: list[tuple[float, int, int]], seconds: float = 0.0, retries: int = 0
) -> int:
    """Simulate until all questions are answered; returns how many were refused finally.

    As with a proxy, a question goes to the replica with the fewest open questions and, if refused, to up to `retries`
    further replicas. Until `seconds`, clients retry after `Retry-After`.
    """
    refused = 0
    while coming or any(replica.ends < inf for replica in replicas):
        busy = min(replicas, key=lambda replica: replica.ends)
        if not coming or busy.ends < coming[0][0]:
            busy.end_step()
            continue
        now, number, candidates = heapq.heappop(coming)
        wait = 0
        for replica in sorted(replicas, key=lambda replica: len(replica.open))[: 1 + retries]:
            if not (wait := replica.offer(now, candidates)):
                break
        if wait and now + wait < seconds:
            heapq.heappush(coming, (now + wait, number, candidates))
        refused += bool(wait) and now + wait >= seconds
    return refused


def loop(
    replica: Replica | InOrder, clients: Sequence[Sequence[int]], seconds: float, *, retry: bool = True, seed: int = 0
) -> None:
    """Simulate clients that send their next question `THINK` seconds after an answer.

    The candidates of each question are drawn from the client's numbers. A refused question is sent again after
    `Retry-After`; without `retry` the client goes on with its next one.
    """
    rng = random.Random(seed)
    coming = [(0.001 * number, number, rng.choice(sizes)) for number, sizes in enumerate(clients)]
    while min(replica.ends, coming[0][0] if coming else inf) < seconds:
        if not coming or replica.ends < coming[0][0]:
            now = replica.ends
            for _, client in replica.end_step():
                assert isinstance(client, int)
                heapq.heappush(coming, (now + THINK, client, rng.choice(clients[client])))
            continue
        now, client, candidates = heapq.heappop(coming)
        if wait := replica.offer(now, candidates, client):
            again = (now + wait, client, candidates) if retry else (now + THINK, client, rng.choice(clients[client]))
            heapq.heappush(coming, again)


def drawn(rate: float, *, in_order: bool = False, bound: float = BOUND) -> list[Replica | InOrder]:
    """Runs of `DRAWN` at `rate` candidates a second, each with other questions."""
    shape = Shape(SHAPES["cerberank-mini, int8"].work, rate)
    runs: list[Replica | InOrder] = []
    for seed in range(DRAWN_RUNS):
        runs.append(InOrder(shape, bound) if in_order else Replica(shape, bound, slowness=(0.95, 1.05)))
        loop(runs[-1], DRAWN, DRAWN_SECONDS, retry=False, seed=seed)
    return runs


def share_beyond(replica: Replica, questions: int) -> float:
    """The share of questions that waited longer than the default bound."""
    return sum(each.queued > BOUND for each in replica.answers) / questions


def refused_and_beyond(
    shape: Shape, load: float, mix: Mapping[int, float], seconds: float = 1500.0
) -> tuple[float, float]:
    """The share that is refused, and the share that waits longer than the bound without admission; no retries."""
    coming = arrivals(load * shape.rate, seconds, 3, mix)
    questions, on, off = len(coming), Replica(shape), Replica(shape, bound=inf)
    refused = serve([on], list(coming))
    serve([off], list(coming))
    return refused / questions, share_beyond(off, questions)


def replicas_refuse(shape: Shape, count: int, load: float, mix: Mapping[int, float]) -> float:
    """The share of about 30,000 questions that `count` replicas behind a proxy refuse, each at the load `load`."""
    mean = sum(size * share for size, share in mix.items())
    rate = load * shape.rate * count
    coming = arrivals(rate, 30_000 * mean / rate, 1, mix)
    questions = len(coming)
    return serve([Replica(shape) for _ in range(count)], coming, retries=1) / questions


QUEUE = (
    "| model | candidates | answers | median time in the queue | longest time in the queue | refusals |\n"
    "|---|---|---|---|---|---|"
)


def _rows() -> Iterator[str]:
    yield "Refused / beyond the bound with admission off, % of the questions, at a load of"
    yield "| model | candidates | 10 % | 30 % | 50 % | 70 % |\n|---|---|---|---|---|---|"
    mixes: dict[str, dict[int, float]] = {"4": {4: 1.0}, "20": {20: 1.0}, "200": {200: 1.0}, "mixed": MIX}
    for name, shape in SHAPES.items():
        for label, mix in mixes.items():
            shares = [refused_and_beyond(shape, load, mix) for load in (0.1, 0.3, 0.5, 0.7)]
            cells = " | ".join(f"{100 * refused:.1f} / {100 * beyond:.1f}" for refused, beyond in shares)
            yield f"| {name} | {label} | {cells} |"
    yield "\nSixteen clients in a closed loop for two minutes"
    yield QUEUE
    for name, shape in SHAPES.items():
        replica = Replica(shape)
        loop(replica, LOOPS, 120.0)
        yield from _queue_rows(name, replica, (4, 50, 200))
    yield f"\nSixteen clients in a closed loop, 4, 4, 50 or 200 candidates at random, {DRAWN_RUNS} runs of 20 seconds"
    yield "| cores | order | candidates | answers | median | p99 | longest, median of the runs | longest | refusals |"
    yield "|---" * 9 + "|"
    for cores, rate in DRAWN_RATES.items():
        for order in ("ours", "of arrival"):
            yield from _drawn_rows(f"{cores}, {rate:g}/s | {order}", drawn(rate, in_order=order != "ours"))
    yield "\nOne client with 20 candidates beside others with 5,000, in a closed loop for a minute, nothing refused"
    yield "| model | clients with 5,000 | answers to questions of 20 | median | p99 | longest |\n" + "|---" * 6 + "|"
    for name, shape in SHAPES.items():
        for others in (1, 4):
            replica = Replica(shape, inf)
            loop(replica, [[20], *[[5000]] * others], 60.0)
            latencies = [each.latency for each in replica.answers if each.candidates == 20]
            times = " | ".join(f"{each:.2f} s" for each in np.percentile(latencies, (50, 99, 100)).tolist())
            yield f"| {name} | {others} | {len(latencies):,} | {times} |"
    yield "\nThree times the capacity for three minutes, clients that obey Retry-After"
    yield QUEUE
    for name, shape in SHAPES.items():
        replica = Replica(shape)
        serve([replica], arrivals(3.0 * shape.rate, 180.0, 0), 180.0)
        yield from _queue_rows(name, replica, MIX)
    yield "\nRefused, % of the questions, mixed sizes, least connections and one retry on another replica, at a load of"
    loads = (0.5, 0.6, 0.7, 0.8, 0.9)
    yield "| model | replicas | " + " | ".join(f"{100 * load:.0f} %" for load in loads) + " |\n" + "|---" * 7 + "|"
    for name, shape in SHAPES.items():
        for count in (1, 2, 4, 9):
            shares_ = [replicas_refuse(shape, count, load, MIX) for load in loads]
            yield f"| {name} | {count} | " + " | ".join(f"{100 * share:.2f}" for share in shares_) + " |"


def _drawn_rows(name: str, runs: Sequence[Replica | InOrder]) -> Iterator[str]:
    for size in sorted(set(DRAWN[0])):
        took = [[each.latency for each in run.answers if each.candidates == size] or [0.0] for run in runs]
        every, longest = [latency for run in took for latency in run], [max(run) for run in took]
        refusals = sum(candidates == size for run in runs for candidates, _ in run.refusals)
        times = (*np.percentile(every, (50, 99)).tolist(), float(np.median(longest)), max(longest))
        cells = " | ".join(f"{seconds:.2f} s" for seconds in times)
        yield f"| {name} | {size} | {len(every):,} | {cells} | {refusals:,} |"
        name = " | "


def _queue_rows(model: str, replica: Replica, sizes: Iterable[int]) -> Iterator[str]:
    for size in sizes:
        waits = [each.queued for each in replica.answers if each.candidates == size] or [0.0]
        refusals = sum(candidates == size for candidates, _ in replica.refusals)
        queue = f"{np.median(waits):.2f} s | {max(waits):.2f} s"
        yield f"| {model} | {size} | {len(waits):,} | {queue} | {refusals:,} |"
        model = ""


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    for row in _rows():
        sys.stdout.write(f"{row}\n")
        sys.stdout.flush()
