"""The load generator: sends requests to `/v1/rank` at given times or in closed loops, and records their outcomes.

`python -m cerberank_benchmarks.clients.load URL` imitates the users of a trial and prints statuses and latencies.
`docker compose --profile load` runs only this file, so the only library that it imports is httpx.
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
    """The body of a request, with values for checks of its answer."""

    content: bytes
    candidates: int
    number: int = 0
    """The place of the body among several bodies that are sent in turn."""
    id: str = ""
    """The value of `X-Request-Id`; no header is sent if it is empty."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The outcome of one request; times are in seconds since the beginning of the load."""

    candidates: int
    fate: Literal["answered", "gave up", "failed"]
    """`gave up` is a request whose last attempt was refused."""
    seconds: float
    """The duration of the last attempt."""
    ended: float
    due: float = 0.0
    """The scheduled time of the request."""
    status: int = 200
    """The HTTP status; NO_ANSWER if there was no complete answer."""
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
        """The time from the scheduled time to the answer, which includes waiting for a connection."""
        return 1000.0 * (self.ended - self.due)


@dataclass
class Load:
    """Sends requests to the service at `url`; after `seconds` no request is sent."""

    url: str
    seconds: float = inf
    refused: Literal["wait", "go on", "end"] = "go on"
    """The client's reaction to a refusal: retry after `Retry-After`, send the next request, or end its loop."""
    connections: int | None = None
    """Limit of simultaneous connections; without it, requests never wait for a connection."""
    patience: float = 600.0
    """Seconds after which a request without an answer fails."""
    address: str | None = None
    """The local address from which requests are sent."""
    answers: list[Answer] = field(default_factory=list)
    """All answers in the order of their arrival."""
    begin: float = field(default_factory=time.monotonic)

    @property
    def now(self) -> float:
        """Seconds since the load began."""
        return time.monotonic() - self.begin

    async def at_times(self, requests: Iterator[Request], times: Iterator[float]) -> list[Answer]:
        """Send a request at each time, even if earlier ones are not answered yet; returns the answers in this order."""
        self.begin = time.monotonic()
        tasks = []
        async with self._connected() as client, asyncio.TaskGroup() as group:
            for due in itertools.takewhile(lambda due: due < self.seconds, times):
                # A late request is sent at once, so that a slow client process does not reduce the load.
                await asyncio.sleep(max(0.0, due - self.now))
                tasks.append(group.create_task(self._ask(client, next(requests), due)))
        return [task.result() for task in tasks]

    async def in_loops(self, clients: Sequence[Iterator[Request]], *, pause: float = 0.0) -> list[list[Answer]]:
        """Let each client send its next request `pause` seconds after an answer; each client sends at least one."""
        self.begin = time.monotonic()
        async with self._connected() as client, asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._loop(client, requests, pause)) for requests in clients]
        return [task.result() for task in tasks]

    @contextmanager
    def meanwhile(self, sending: Coroutine[Any, Any, object]) -> Iterator[None]:
        """Run `sending` in a separate thread during the block; at the end of the block, wait for all answers."""
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
        # Send until the answer is final: only a client that waits sends a refused request again.
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
        # Whether it counts as an answer, and what checks may want to know of it.
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
    """Times at intervals of `1 / rate`."""
    return (number / rate for number in itertools.count())


def by_chance(rate: float, rng: random.Random) -> Iterator[float]:
    """Times of a Poisson process."""
    return itertools.accumulate(rng.expovariate(rate) for _ in itertools.count())


def request_of(body: dict[str, Any], **more: Any) -> Request:
    """The request with this body."""
    return Request(content=json.dumps(body).encode(), candidates=len(body["candidates"]), **more)


def percentile(answers: Sequence[Answer], percent: float) -> float:
    """A percentile of the answers' milliseconds, rounded down to a measured value; NaN without answers."""
    ordered = sorted(answer.milliseconds for answer in answers)
    return ordered[int((len(ordered) - 1) * percent / 100.0)] if ordered else float("nan")


def users(rng: random.Random, candidates: float) -> Iterator[Request]:
    """The questions of one user: `candidates` is the mean size; one in ten has a deadline and a drop ratio."""
    while True:
        texts = [_words(rng, rng.randint(5, 60)) for _ in range(max(1, round(rng.expovariate(1 / candidates))))]
        options = {"deadline_ms": 200, "drop_ratio": 0.4} if rng.random() < 0.1 else {}
        yield request_of({"question": _words(rng, 8) + "?", "candidates": texts, **options})


def _words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choices(WORDS, k=count))


async def _report(load: Load) -> None:
    reported = 0
    while load.now < load.seconds:
        await asyncio.sleep(min(LINE_SECONDS, load.seconds - load.now))
        new = load.answers[reported:]
        reported += len(new)
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
    """Send requests until `--seconds` are over, and print a line every ten seconds."""
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
