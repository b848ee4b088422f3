from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend, Faults, checkpoint_for, loader, slow_loader
from tests.service.observe import samples, wait_until

from cerberank_models.backends.processors import usable_processors
from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_service.settings import Settings
from cerberank_service.telemetry.metrics import Metrics, VersionMetrics
from cerberank_service.versions.loading import Loaded, Loader, load
from cerberank_service.versions.registry import VersionRegistry
from cerberank_service.versions.single import SingleCheckpoint
from cerberank_service.versions.state import State

QUESTION = {"question": "q", "candidates": ["a"]}


def state_of(client: TestClient) -> str:
    return str(client.get("/v1/models").json()["models"][0]["state"])


def test_the_process_answers_while_the_model_loads(open_app: Serve, tmp_path: Path) -> None:
    """Live at once, ready only later; a question meanwhile is told when to come back."""
    with slow_loader(tmp_path) as slowly:
        client = open_app(slowly)
        assert client.get("/health/live").json() == {"live": True}
        assert client.get("/health/ready").json() == {"ready": False, "state": "loading"}
        assert client.get("/health/ready").status_code == 503
        refused = client.post("/v1/rank", json=QUESTION)
        assert (refused.status_code, refused.json()["error"]["kind"]) == (503, "unavailable")
        assert int(refused.headers["Retry-After"]) >= 1
        assert client.get("/info").status_code == 503
        assert samples(client)["cerberank_ready{}"] == 0
    wait_until(lambda: client.get("/health/ready").status_code == 200)
    assert client.post("/v1/rank", json=QUESTION).status_code == 200
    assert samples(client)["cerberank_ready{}"] == 1


def test_it_is_ready_only_after_golden_questions_and_warm_up(serve: Serve) -> None:
    """Every stage has run before the first client comes."""
    backend = FakeBackend()
    serve(backend)
    golden, warm_up = (0, 3), [(stage, max(4, usable_processors())) for stage in range(3)]
    assert backend.runs[0] == golden
    assert backend.runs[-3:] == warm_up


def test_the_engines_thread_computes_before_it_is_asked_on_a_gpu(serve: Serve) -> None:
    """For the handles that libraries make for each thread."""
    backend = FakeBackend()
    serve(backend, device="cuda")
    wait_until(lambda: "engine" in backend.threads)


def _mismatch(folder: Path) -> Loader:
    backend = FakeBackend()
    checkpoint = checkpoint_for(backend, folder)
    golden = checkpoint.golden[0].model_copy(update={"scores": {"int8": (0.5, 0.5, 0.5)}})
    return lambda *_: Loaded(replace(checkpoint, golden=(golden,)), backend)


def _failing(folder: Path) -> Loader:
    return loader(FakeBackend(faults=Faults(always=True)), folder)


def _slow(folder: Path) -> Loader:
    return loader(FakeBackend(), folder)


@pytest.mark.parametrize(
    ("make", "settings", "reason"),
    [
        (_mismatch, {}, "differ from the golden ones"),
        (_failing, {}, "secret"),
        (_slow, {"slowest_ms": 1e-9}, "CERBERANK_SLOWEST_MS allows"),
    ],
)
def test_a_model_that_fails_its_checks_never_serves(
    open_app: Serve, tmp_path: Path, make: Callable[[Path], Loader], settings: dict[str, float], reason: str
) -> None:
    """The service is not ready, `/v1/models` has the reason, questions get 503, and probes answer."""
    client = open_app(make(tmp_path), **settings)
    wait_until(lambda: state_of(client) == "failed")
    assert reason in client.get("/v1/models").json()["models"][0]["reason"]
    assert client.get("/health/ready").status_code == 503
    assert client.get("/health/live").status_code == 200
    refused = client.post("/v1/rank", json=QUESTION)
    assert refused.status_code == 503
    assert "Retry-After" in refused.headers
    assert "secret" not in refused.text


def test_a_dead_engine_is_not_ready(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The question that it died on is answered, both probes fail at once, the next question is refused."""

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError("out of something")

    client = serve(FakeBackend())
    monkeypatch.setattr(VersionMetrics, "step", fail)
    answer = client.post("/v1/rank", json=QUESTION)
    assert (answer.status_code, answer.json()["error"]["kind"]) == (503, "unavailable")
    wait_until(lambda: client.get("/health/ready").status_code == 503)
    assert client.get("/health/live").status_code == client.get("/v2/health/live").status_code == 503
    assert state_of(client) == "failed"
    assert client.post("/v1/rank", json=QUESTION).status_code == 503
    assert samples(client)["cerberank_ready{}"] == 0


def test_models_tells_what_is_served(client: TestClient) -> None:
    """Enough to know what a score means."""
    (model,) = client.get("/v1/models").json()["models"]
    assert model["model"] == "fake-ranker"
    assert (model["version"], model["state"], model["reason"]) == ("7", State.READY.value, None)
    assert (model["architecture"], model["stages"], model["exits"]) == ("B2 3H1", 3, [1, 2])
    assert (model["precision"], model["max_length"]) == ("int8", 64)
    assert (model["question_length"], model["question_part"]) == (24, "end")


def test_the_default_checkpoint_is_not_read_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings decide: a variable that changes after the start, or that they do not hold, has no effect."""
    monkeypatch.setenv("CERBERANK_CHECKPOINT", str(tmp_path / "elsewhere"))
    opened = SimpleQueue[Path]()
    monkeypatch.setattr("cerberank_service.versions.single.read_checkpoint", opened.put)
    settings = Settings(checkpoint=None)
    SingleCheckpoint(settings, VersionRegistry(settings, on_idle=lambda: None), Metrics(), load).start()
    assert opened.get(timeout=20) == BUNDLED
