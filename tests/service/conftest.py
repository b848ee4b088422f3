"""Apps and engines on the fake backend, started and ready."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.service.asking import Running
from tests.service.fakes import FakeBackend, checkpoint_for, loader
from tests.service.following import Follow
from tests.service.observe import service_of, wait_until
from tests.service.pushes import open_fake, version_at

from cerberank_models.backends.stage_contract import Backend
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.store.checkpoint_store import Reference
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_models.encoding import PairEncoder
from cerberank_service.app import create_app
from cerberank_service.engine.engine import Engine
from cerberank_service.settings import Settings
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.versions.copy_process import copy_version, failure_as_json
from cerberank_service.versions.failure import failure_of
from cerberank_service.versions.loading import Loader
from cerberank_service.versions.state import State

Serve = Callable[..., TestClient]
Start = Callable[..., Running]


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


def unset(environment: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        environment.delenv(f"CERBERANK_{name.upper()}", raising=False)


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment holds no setting."""
    unset(monkeypatch)


@pytest.fixture(scope="session")
def fake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint that apps read; their loaders say which backend runs it."""
    return version_at(tmp_path_factory.mktemp("fake"), "7").path


@contextmanager
def apps(checkpoint: Path) -> Iterator[Serve]:
    """A function that starts apps, which end with the block."""
    with ExitStack() as stack:

        def start(load: Loader, **settings: object) -> TestClient:
            served = {} if "store" in settings else {"checkpoint": checkpoint}
            app = create_app(Settings.model_validate(served | settings), load, exposition_seconds=0.0)
            return stack.enter_context(TestClient(app, raise_server_exceptions=False))

        yield start


def once_ready(client: TestClient) -> TestClient:
    versions = service_of(client).versions
    wait_until(lambda: versions.snapshot.state is not State.LOADING)
    assert versions.snapshot.state is State.READY, versions.snapshot.reason
    return client


@pytest.fixture
def open_app(no_settings: None, fake_folder: Path) -> Iterator[Serve]:
    """Starts apps: `open_app(loader, max_candidates=5)` gives a client at once, whatever the model's state."""
    with apps(fake_folder) as start:
        yield start


@pytest.fixture
def serve(open_app: Serve, tmp_path: Path) -> Serve:
    """Starts apps: `serve(backend, max_candidates=5)` gives a client once the model is ready."""
    return lambda backend, /, **settings: once_ready(open_app(loader(backend, tmp_path), **settings))


@pytest.fixture(scope="module")
def serve_once(tmp_path_factory: pytest.TempPathFactory, fake_folder: Path) -> Iterator[Serve]:
    """Starts apps as `serve` does, for all tests of a file that do nothing but ask."""
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as environment, apps(fake_folder) as start:
        unset(environment)
        yield lambda backend, /, **settings: once_ready(start(loader(backend, folder), **settings))


@pytest.fixture
def client(serve: Serve, backend: FakeBackend) -> TestClient:
    return serve(backend)


@pytest.fixture
def encoder(tmp_path: Path) -> PairEncoder:
    return checkpoint_for(FakeBackend(), tmp_path).encoder()


@pytest.fixture
def start(encoder: PairEncoder) -> Iterator[Start]:
    """Starts engines; they are stopped, and must end, after the test."""
    engines: list[Engine] = []

    def make(backend: Backend[Any], **changes: Any) -> Running:
        counts = Metrics().for_model("fake-ranker", "7", backend.config.scored_stages)
        options: dict[str, Any] = {"step_tokens": 10_000, "metrics": counts} | changes
        engine = Engine(backend, **options)
        engine.start()
        engines.append(engine)
        return Running(engine, encoder)

    yield make
    for engine in engines:
        engine.stop(0.0)
        engine.join(20.0)
        assert not engine.running, "the engine's thread did not end"


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    """An empty store."""
    return FolderStore(tmp_path / "store")


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Checkpoint]:
    """Makes checkpoints of the fake ranker: `made("2")`."""
    return lambda version, **options: version_at(tmp_path / "made", version, **options)


@dataclass(frozen=True)
class CopyProcess:
    """A process that has copied a version, as `Copies` sees it."""

    returncode: int
    output: bytes

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        return self.output, b""


@contextmanager
def copied_here(command: Sequence[str]) -> Iterator[CopyProcess]:
    *_, address, model, version, target, _, trial = command
    try:
        copy_version(address, Reference(model, version), Path(target), json.loads(trial)["most_bytes"])
    except Exception as error:
        yield CopyProcess(1, failure_as_json(failure_of(error, copying=True)).encode())
    else:
        yield CopyProcess(0, b'{"memory": 0}')


@pytest.fixture
def copier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions are copied in this process and not tried, as starting another takes longer than most tests.

    `test_copies` and `test_trial` have it.
    """
    monkeypatch.setattr("cerberank_service.versions.copies._started", copied_here)


@pytest.fixture
def follow(open_app: Serve, copier: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Follow:
    """Starts an app that follows `store`; its copies lie in `tmp_path`."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def start(load: Loader = open_fake, **settings: object) -> TestClient:
        options = {"store": str(tmp_path / "store"), "store_poll_seconds": 0.01} | settings
        return open_app(load, **options)

    return start
