"""Simulates one service under load: its admission and scheduling, on a clock of its own."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Mapping, Sequence
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
class Simulated:
    """One service. A step takes its predicted time, times a random factor between the two values of `slowness`."""

    shape: Shape
    bound: float = BOUND
    slowness: tuple[float, float] = (1.0, 1.0)
    answers: list[Answered] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)
    """Candidates of each refused question."""

    def __post_init__(self) -> None:
        work = self.shape.work
        seconds = [stage / sum(work) / self.shape.rate / TOKENS for stage in work]
        least, most = PROCESSOR_TOKENS
        step_tokens = max(least, min(int(LONGEST_STEP_SECONDS / max(seconds)), most))
        self.speeds = StageSpeeds(work, step_tokens)
        for stage, stage_seconds in enumerate(seconds):
            self.speeds.observe(stage, 10**6, 10**6 * stage_seconds)
        self.admission = Admission(self.speeds, self.bound)
        self.scheduler = Scheduler(step_tokens, work)
        self.ends = inf
        """The time at which the running step ends."""
        self._open: dict[int, tuple[float, int, int]] = {}
        """Arrival, candidates and client of each question in progress."""
        self._unscored: dict[int, int] = {}
        self._keys = 0
        self._step: Step | None = None
        self._random = random.Random(0)

    def offer(self, now: float, candidates: int, client: int = 0) -> int:
        """Offer a question; returns `Retry-After`, or 0 if it is accepted."""
        tokens = (float(candidates * TOKENS),) * len(self.shape.work)
        offer = Offer(tokens=candidates * TOKENS, stage_tokens=tokens, received=now)
        try:
            self.admission.check(offer, now)
        except ServiceError as error:
            self.refusals.append(candidates)
            return error.retry_after or 1
        key = self._keys
        self._keys += 1
        self.admission.enter(key, offer)
        self.scheduler.add(key, tokens)
        self.scheduler.queue(key, 0, np.arange(candidates), np.full(candidates, TOKENS))
        self._open[key] = (now, candidates, client)
        self._unscored[key] = candidates
        if self._step is None:
            self._begin(now)
        return 0

    def _begin(self, now: float) -> None:
        self._step = self.scheduler.next_step()
        self.ends = inf
        if self._step is not None:
            seconds = self._step.tokens * self.speeds.seconds_per_token[self._step.stage]
            self.ends = now + self._random.uniform(*self.slowness) * seconds

    def end_step(self) -> list[int]:
        """End the running step and begin the next; returns the client of each answered question."""
        assert self._step is not None
        step, now, clients = self._step, self.ends, []
        for key, rows in step.parts:
            self.admission.ran(key, step.stage, len(rows) * TOKENS)
            if step.stage + 1 < len(self.shape.work):
                self.scheduler.queue(key, step.stage + 1, rows, np.full(len(rows), TOKENS))
                continue
            self._unscored[key] -= len(rows)
            if not self._unscored[key]:
                self.scheduler.remove(key, answered=True)
                self.admission.leave(key)
                arrival, candidates, client = self._open.pop(key)
                alone = candidates / self.shape.rate
                self.answers.append(Answered(candidates, arrival, now - arrival - alone, alone))
                clients.append(client)
        self._begin(now)
        return clients


@dataclass
class InOrder:
    """A service that answers one question after the other, in the order of arrival, with the same bound."""

    rate: float
    refusals: list[int] = field(default_factory=list)
    _open: deque[tuple[float, int]] = field(default_factory=deque)
    """End and client of each accepted question."""

    @property
    def ends(self) -> float:
        """The time at which the running question ends."""
        return self._open[0][0] if self._open else inf

    def offer(self, now: float, candidates: int, client: int = 0) -> int:
        """Offer a question; returns `Retry-After`, or 0 if it is accepted."""
        begins = max(now, self._open[-1][0]) if self._open else now
        if begins - now > BOUND:
            self.refusals.append(candidates)
            return retry_after(begins - now - BOUND)
        self._open.append((begins + candidates / self.rate, client))
        return 0

    def end_step(self) -> list[int]:
        """End the running question and begin the next; returns its client."""
        return [self._open.popleft()[1]]


def arrivals(rate: float, seconds: float, mix: Mapping[int, float]) -> list[tuple[float, int, int]]:
    """Poisson arrivals of `rate` candidates per second: (time, number, candidates), in order."""
    rng = random.Random(0)
    questions = rate / sum(size * share for size, share in mix.items())
    coming: list[tuple[float, int, int]] = []
    moment = rng.expovariate(questions)
    while moment < seconds:
        coming.append((moment, len(coming), rng.choices(list(mix), list(mix.values()))[0]))
        moment += rng.expovariate(questions)
    return coming


def serve(service: Simulated, coming: list[tuple[float, int, int]], seconds: float = 0.0) -> int:
    """Simulate until all questions are answered; returns how many were refused finally.

    Until `seconds`, clients retry after `Retry-After`.
    """
    refused = 0
    while coming or service.ends < inf:
        if not coming or service.ends < coming[0][0]:
            service.end_step()
            continue
        now, number, candidates = heapq.heappop(coming)
        wait = service.offer(now, candidates)
        if wait and now + wait < seconds:
            heapq.heappush(coming, (now + wait, number, candidates))
        elif wait:
            refused += 1
    return refused


def loop(service: Simulated | InOrder, clients: Sequence[Sequence[int]], seconds: float, seed: int) -> None:
    """Simulate clients that send their next question `THINK` seconds after an answer or a refusal.

    The candidates of each question are drawn from the client's numbers.
    """
    rng = random.Random(seed)
    coming = [(0.001 * number, number, rng.choice(sizes)) for number, sizes in enumerate(clients)]
    while min(service.ends, coming[0][0] if coming else inf) < seconds:
        if not coming or service.ends < coming[0][0]:
            now = service.ends
            free = service.end_step()
        else:
            now, client, candidates = heapq.heappop(coming)
            free = [client] if service.offer(now, candidates, client) else []
        for client in free:
            heapq.heappush(coming, (now + THINK, client, rng.choice(clients[client])))
