from __future__ import annotations

import gc
import weakref

import pytest
from starlette.testclient import TestClient
from tests.service.asking import busy, error, held
from tests.service.conftest import Serve, Start
from tests.service.fakes import FakeBackend
from tests.service.following import BODY
from tests.service.observe import samples, wait_until

from cerberank_service.engine import engine as engine_module
from cerberank_service.engine.engine import TICK_SECONDS, Engine, Pause
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.telemetry.metrics import Metrics


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines are given up after some ticks of a hundredth of a second."""
    for name, value in (("LEAST_SECONDS", 0.05), ("SLOWNESS", 0.0), ("TICK_SECONDS", 0.01)):
        monkeypatch.setattr(engine_module, name, value)


def test_only_a_pause_with_questions_and_without_progress_counts() -> None:
    """Progress, an idle engine, and a new question after an idle time begin the count again."""
    pause, now, seen = Pause(), 0.0, []
    for progress in (None, None, 4, 4, 4, 5, 5, None, 5, 5):
        now += TICK_SECONDS
        pause.look(now, progress)
        seen.append(pause.seconds / TICK_SECONDS)
    assert seen == [0, 0, 0, 1, 2, 0, 1, 0, 0, 1]


def test_a_suspended_machine_is_no_pause() -> None:
    """An hour between two looks counts as two ticks."""
    pause = Pause()
    pause.look(0.0, 1)
    pause.look(3600.0, 1)
    assert pause.seconds == 2 * TICK_SECONDS


@pytest.mark.usefixtures("impatient")
def test_an_engine_that_hangs_answers_everybody_once(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """The running question and those behind it get 503 while the call hangs; when it ends after all, nothing more."""
    backend = FakeBackend()
    running = start(backend)
    with held(backend):
        waiting = [running.ask(["a"])]
        assert backend.entered.wait(20)
        waiting += [running.ask(["b"]) for _ in range(3)]
        assert {error(future).kind for future in waiting} == {Kind.UNAVAILABLE}
        assert (running.engine.alive, running.engine.running) == (False, True)
        assert running.engine.stalled_seconds > 0.0
        assert running.engine.queued_tokens == 0
        with pytest.raises(ServiceError) as refused:
            running.ask(["c"])
        assert refused.value.kind is Kind.UNAVAILABLE
    running.engine.join(20.0)
    assert "the engine failed" not in caplog.text  # as it would if a future were resolved twice
    assert not running.engine.running
    assert running.engine.stalled_seconds == 0.0
    assert len(backend.runs) == 1


def test_a_long_step_is_allowed_its_prediction_many_times(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that was predicted to take a minute may hang for longer than the least time."""
    for name, value in (("LEAST_SECONDS", 0.02), ("TICK_SECONDS", 0.01)):
        monkeypatch.setattr(engine_module, name, value)
    backend = FakeBackend()
    running = start(backend)
    running.engine.speeds.observe(0, 1, 60.0)
    with busy(backend, running.ask, ["a"]) as future:
        wait_until(lambda: running.engine.stalled_seconds > 0.1)
        assert running.engine.alive
    assert not isinstance(future.result(20), ServiceError)


def health(client: TestClient) -> tuple[int, int]:
    return client.get("/health/live").status_code, client.get("/health/ready").status_code


@pytest.mark.usefixtures("impatient")
def test_a_service_whose_model_hangs_is_neither_alive_nor_ready(serve: Serve) -> None:
    """Its waiting request gets 503, and the metrics say for how long nothing has moved."""
    backend = FakeBackend()
    client = serve(backend)
    assert health(client) == (200, 200)
    with held(backend):
        answer = client.post("/v1/rank", json=BODY)
        assert answer.status_code == 503
        assert "Retry-After" in answer.headers
        assert health(client) == (503, 503)
        figures = samples(client)
        assert figures["cerberank_stalled_seconds{model=fake-ranker,version=7}"] > 0.0
        assert figures["cerberank_engine_running{model=fake-ranker,version=7}"] == 0.0


def test_an_engine_that_has_ended_is_freed_at_once() -> None:
    """Its model takes tens of megabytes: in a cycle they would stay until the garbage collector looks for cycles."""
    backend = FakeBackend()
    engine = Engine(backend, step_tokens=100, metrics=Metrics().for_model("fake-ranker", "7", 3))
    engine.start()
    kept = weakref.ref(backend)
    gc.collect()
    gc.disable()
    try:
        engine.stop(0.0)
        engine.join(20.0)
        del engine, backend
        wait_until(lambda: kept() is None)  # the watchdog's thread ends with the engine's
    finally:
        gc.enable()
