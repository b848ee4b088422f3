"""The load generator: requests to `/v1/rank` at given times or in closed loops, and the outcome of each.

`python -m cerberank_benchmarks.clients.load URL` asks as a trial's users do and prints what they see; `docker compose
--profile load` runs this file alone, so it imports nothing but httpx.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal

import httpx

BUSY = (429, 503)
NO_ANSWER = 0
WORDS = ("the", "a", "of", "in", "was", "built", "tower", "river", "metres", "year", "city", "map", "water", "people")
LINE_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """The body of a request, and what its answer is compared with."""

    content: bytes
    candidates: int
    number: int = 0
    """Its place among the bodies that are sent in turns."""
    id: str = ""
    """Sent as `X-Request-Id`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The outcome of one request; times are in seconds after the load began."""

    candidates: int
    fate: Literal["answered", "gave up", "failed"]
    """A request that is refused in the end is given up."""
    seconds: float
    """The duration of the last attempt."""
    ended: float
    due: float = 0.0
    """The time at which it was to be sent."""
    status: int = 200
    """NO_ANSWER: none came, or half of one."""
    refusals: int = 0
    retry_after: str | None = None
    number: int = 0
    id: str = ""
    answer_id: str = ""
    version: str = ""
    order: tuple[int, ...] = ()
    tokens: int = 0
    """The request's tokens, as the service counted them."""

    @property
    def milliseconds(self) -> float:
        """The time since the request was due, so that waiting for a connection counts."""
        return 1000.0 * (self.ended - self.due)


@dataclass
class Load:
    """Requests to the service at `url`, the first at once; nothing is sent after `seconds`."""

    url: str
    seconds: float = inf
    refused: Literal["wait", "go on", "end"] = "go on"
    """The client's reaction: it sends it again when `Retry-After` is over, sends its next request, or ends its loop."""
    connections: int | None = None
    """The most at once; by default no request waits for another in the client."""
    patience: float = 600.0
    """Seconds until a request without an answer is given up."""
    address: str | None = None
    """The local address that requests come from."""
    answers: list[Answer] = field(default_factory=list)
    """As they come."""
    begin: float = field(default_factory=time.monotonic)

    @property
    def now(self) -> float:
        """Seconds since the load began."""
        return time.monotonic() - self.begin

    async def at_times(self, requests: Iterator[Request], times: Iterator[float]) -> list[Answer]:
        """Send a request at each time, whether earlier ones are answered or not; the answers in that order."""
        self.begin = time.monotonic()
        tasks = []
        async with self._connected() as client, asyncio.TaskGroup() as group:
            for due in itertools.takewhile(lambda due: due < self.seconds, times):
                # Behind schedule, the next request starts at once: a slow client process must not reduce the load.
                await asyncio.sleep(max(0.0, due - self.now))
                tasks.append(group.create_task(self._ask(client, next(requests), due)))
        return [task.result() for task in tasks]

    async def in_loops(self, clients: Sequence[Iterator[Request]], *, pause: float = 0.0) -> list[list[Answer]]:
        """Let each client send its next request `pause` seconds after an answer; each sends at least one."""
        self.begin = time.monotonic()
        async with self._connected() as client, asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._loop(client, requests, pause)) for requests in clients]
        return [task.result() for task in tasks]

    @contextmanager
    def meanwhile(self, sending: Coroutine[Any, Any, object]) -> Iterator[None]:
        """Send in a thread of its own while the block lasts; every request has its answer when it ends."""
        with ThreadPoolExecutor(1, thread_name_prefix="load") as pool:
            sent = pool.submit(asyncio.run, sending)
            try:
                yield
            finally:
                self.seconds = min(self.seconds, self.now)
            sent.result()

    def _connected(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=self.connections, max_keepalive_connections=self.connections)
        transport = httpx.AsyncHTTPTransport(local_address=self.address, limits=limits)
        return httpx.AsyncClient(base_url=self.url, timeout=self.patience, transport=transport)

    async def _loop(self, client: httpx.AsyncClient, requests: Iterator[Request], pause: float) -> list[Answer]:
        answers: list[Answer] = []
        while not answers or (self.now < self.seconds and not (self.refused == "end" and answers[-1].status != 200)):
            answers.append(await self._ask(client, next(requests), self.now))
            await asyncio.sleep(pause)
        return answers

    async def _ask(self, client: httpx.AsyncClient, request: Request, due: float) -> Answer:
        refusals = 0
        headers = {"X-Request-Id": request.id} if request.id else {}
        while True:
            sent = self.now
            status, content, after = NO_ANSWER, {}, None
            try:
                response = await client.post("/v1/rank", content=request.content, headers=headers)
                status, content, after = response.status_code, response.json(), response.headers.get("retry-after")
            except (httpx.HTTPError, ValueError):
                pass
            ended = self.now
            refusals += status in BUSY
            wait = float(after or 1)
            if status not in BUSY or self.refused != "wait" or ended + wait >= self.seconds:
                break
            await asyncio.sleep(wait)
        order = tuple(result["index"] for result in content.get("results", ()))
        fate: Literal["answered", "gave up", "failed"] = "gave up" if status in BUSY else "failed"
        if status == httpx.codes.OK and len(order) == request.candidates:
            fate = "answered"
        answer = Answer(
            candidates=request.candidates,
            fate=fate,
            seconds=ended - sent,
            ended=ended,
            due=due,
            status=status,
            refusals=refusals,
            retry_after=after,
            number=request.number,
            id=request.id,
            answer_id=str(content.get("id") or content.get("error", {}).get("request_id", "")),
            version=str(content.get("version", "")),
            order=order,
            tokens=int(content.get("usage", {}).get("tokens", 0)),
        )
        self.answers.append(answer)
        return answer


def steadily(rate: float) -> Iterator[float]:
    """Times `1 / rate` apart."""
    return (number / rate for number in itertools.count())


def by_chance(rate: float, rng: random.Random) -> Iterator[float]:
    """Times of a Poisson process."""
    return itertools.accumulate(rng.expovariate(rate) for _ in itertools.count())


def request_of(body: dict[str, Any], **more: Any) -> Request:
    """The request with this body."""
    return Request(content=json.dumps(body).encode(), candidates=len(body["candidates"]), **more)


def percentile(answers: Sequence[Answer], percent: float) -> float:
    """A percentile of the answers' milliseconds, the next value below it; NaN without answers."""
    ordered = sorted(answer.milliseconds for answer in answers)
    return ordered[int((len(ordered) - 1) * percent / 100.0)] if ordered else float("nan")


def users(rng: random.Random, candidates: float) -> Iterator[Request]:
    """A user's questions: their sizes vary about `candidates`, and one in ten has a deadline and drops candidates."""
    while True:
        texts = [_words(rng, rng.randint(5, 60)) for _ in range(max(1, round(rng.expovariate(1 / candidates))))]
        options = {"deadline_ms": 200, "drop_ratio": 0.4} if rng.random() < 0.1 else {}
        yield request_of({"question": _words(rng, 8) + "?", "candidates": texts, **options})


def _words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))


async def _report(load: Load) -> None:
    told = 0
    while load.now < load.seconds:
        await asyncio.sleep(min(LINE_SECONDS, load.seconds - load.now))
        new, told = load.answers[told:], len(load.answers)
        statuses = dict(sorted(Counter(answer.status for answer in new).items()))
        sys.stdout.write(
            f"{load.now:.0f} s: answers by status {statuses}, median {percentile(new, 50):.0f} ms, "
            f"p99 {percentile(new, 99):.0f} ms\n"
        )
        sys.stdout.flush()


async def _ask_as_users(load: Load, options: argparse.Namespace) -> None:
    clients = [users(random.Random(seed), options.candidates) for seed in range(options.clients)]
    await asyncio.gather(load.in_loops(clients, pause=options.pause), _report(load))


def main(argv: list[str]) -> None:
    """Ask until `--seconds` are over, and print a line every ten seconds."""
    parser = argparse.ArgumentParser(prog="python -m cerberank_benchmarks.clients.load", description=__doc__)
    parser.add_argument("url", help="address of the service or of the proxy before it")
    parser.add_argument("--clients", type=int, default=10, help="number of users")
    parser.add_argument("--candidates", type=float, default=100.0, help="mean number of candidates of a question")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between an answer and the next question")
    parser.add_argument("--seconds", type=float, default=inf, help="duration; default: until it is stopped")
    parser.add_argument("--address", help="local address that requests come from")
    options = parser.parse_args(argv)
    load = Load(options.url, seconds=options.seconds, address=options.address)
    asyncio.run(_ask_as_users(load, options))


if __name__ == "__main__":
    main(sys.argv[1:])
