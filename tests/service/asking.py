"""Asks an engine directly, without an app around it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.testclient import TestClient
from tests.service.fakes import FakeBackend, FakeState
from tests.service.first_stages import FakeVectors

from cerberank_models.backends.stage_contract import StageOutput
from cerberank_models.drop import RatioSchedule
from cerberank_models.encoding import Candidate, EncodedPairs, PairEncoder
from cerberank_service.engine.engine import Engine
from cerberank_service.engine.low_priority import LiveTraffic
from cerberank_service.engine.work import Outcome, Ranked, Ticket, Work
from cerberank_service.errors import ServiceError

NO_DROP = RatioSchedule((0.0, 0.0))


@dataclass
class Running:
    """An engine and a way to ask it."""

    engine: Engine
    encoder: PairEncoder

    def ask(self, texts: Sequence[str], **work: Any) -> Future[Outcome]:
        return self.submit(self.encoder.encode("how?", [Candidate(text=text) for text in texts]), **work)

    def submit(self, pairs: EncodedPairs, **work: Any) -> Future[Outcome]:
        return self.ticket(pairs, **work).outcome

    def ticket(self, pairs: EncodedPairs, *, live_traffic: LiveTraffic | None = None, **work: Any) -> Ticket:
        fields: dict[str, Any] = {"policy": NO_DROP, "received": 0.0, "deadline": None} | work
        return self.engine.submit(Work(pairs=pairs, **fields), live_traffic=live_traffic)


def ranked(future: Future[Outcome]) -> Ranked:
    outcome = future.result(timeout=20)
    assert isinstance(outcome, Ranked), outcome
    return outcome


def error(future: Future[Outcome]) -> ServiceError:
    outcome = future.result(timeout=20)
    assert isinstance(outcome, ServiceError)
    return outcome


@contextmanager
def held(*backends: FakeBackend | FakeVectors) -> Iterator[None]:
    """Runs of the backends that begin while the block lasts wait for its end; `entered` is set once one has begun."""
    gate = threading.Event()
    for backend in backends:
        backend.faults.gate = gate
        backend.entered.clear()
    try:
        yield
    finally:
        gate.set()


@contextmanager
def busy(backend: FakeBackend, ask: Callable[..., Any], *arguments: object, **options: object) -> Iterator[Any]:
    """As `held`, from when the question of `ask` is in the model; gives what `ask` does."""
    with held(backend):
        asked = ask(*arguments, **options)
        assert backend.entered.wait(20)
        yield asked


def asgi(client: TestClient, path: str, receive: Callable[[], Awaitable[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The messages of the app for a POST to `path`, whose client sends what `receive` gives."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
        "http_version": "1.1",
        "scheme": "http",
        "server": ("test", 80),
        "client": ("test", 1),
    }
    messages: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    client.portal.call(client.app, scope, receive, send)
    return messages


def goes_when_it_runs(backend: FakeBackend, body: object) -> Callable[[], Awaitable[dict[str, Any]]]:
    """A client that sends a body, and goes when a run of the backend has begun."""
    sent = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> dict[str, Any]:
        if sent:
            return sent.pop()
        while not backend.entered.is_set():
            await asyncio.sleep(0.002)
        return {"type": "http.disconnect"}

    return receive


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


class SlowBackend(FakeBackend):
    """Every run takes a second of the clock that it is given."""

    clock: Clock

    def run(self, state: FakeState, stage: int) -> StageOutput[FakeState]:
        self.clock.now += 1.0
        return super().run(state, stage)
