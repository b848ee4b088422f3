"""A single checkpoint that cannot be served is reported to `cerberank serve`, which then ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import pytest
from tests.service.observe import wait_until

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.convert.checkpoint_cache import ModelImportError
from cerberank_models.convert.source import Source
from cerberank_models.golden import GoldenMismatchError
from cerberank_service.errors import ServiceError
from cerberank_service.settings import Settings, read_settings
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.versions.describe import unready_reason
from cerberank_service.versions.loading import Loaded, Loader, load
from cerberank_service.versions.registry import VersionRegistry
from cerberank_service.versions.single import SingleCheckpoint, UnusableError
from cerberank_service.versions.state import State


class PanicError(BaseException):
    """Like the panic of a library in Rust, no Exception."""


def opened(settings: Settings, loader: Loader) -> tuple[SingleCheckpoint, SimpleQueue[Exception], VersionRegistry]:
    """A checkpoint of these settings, the queue of its errors, and the registry."""
    errors, versions = SimpleQueue[Exception](), VersionRegistry(settings, on_idle=lambda: None)
    single = SingleCheckpoint(settings, versions, Metrics(), loader)
    single.open(errors.put)
    return single, errors, versions


def reported(error: BaseException) -> tuple[Exception, VersionRegistry]:
    """The error that a checkpoint whose loader raises `error` reports, and the registry after it."""

    def fail(checkpoint: Checkpoint, settings: Settings) -> Loaded:
        raise error

    single, errors, versions = opened(Settings(), fail)
    single.start()
    return errors.get(timeout=20), versions


@pytest.mark.parametrize(
    ("error", "exit_code", "traced"),
    [
        (GoldenMismatchError("other scores"), 2, False),
        (PanicError("divided by zero"), 2, True),
        (MemoryError("no room"), 1, False),
        (RuntimeError("can't start new thread"), 1, False),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), 1, True),
    ],
    ids=repr,
)
def test_the_error_says_what_to_set(
    caplog: pytest.LogCaptureFixture, error: BaseException, exit_code: int, traced: bool
) -> None:
    """Another start may help against a shortage or a failed device alone; only an unforeseen error has a traceback."""
    unusable, versions = reported(error)
    assert isinstance(unusable, UnusableError)
    assert unusable.exit_code == exit_code
    assert f"cannot be served: {error}; CERBERANK_CHECKPOINT (" in str(unusable)
    assert "CERBERANK_STORE (" in str(unusable)
    assert "a MODEL (" in str(unusable)
    assert [record.exc_info is not None for record in caplog.records] == [True] * traced
    assert versions.snapshot.reason == str(error)
    assert versions.snapshot.state in {State.LOADING, State.FAILED}  # its thread is about to end start-up


def test_a_missing_library_is_left_to_the_program() -> None:
    """It knows the extra that brings the library."""
    error = ModuleNotFoundError("No module named 'onnxruntime'", name="onnxruntime")
    assert reported(error)[0] is error


def place_of(monkeypatch: pytest.MonkeyPatch, folder: Path, imported: object) -> Source:
    """The model someone/tiny, whose import is the function `imported`."""
    (folder / "config.json").write_text("{}")
    source = Source(place="someone/tiny", folder=folder, commit="c")
    monkeypatch.setattr("cerberank_service.versions.single.find_source", lambda *named: source)
    monkeypatch.setattr("cerberank_service.versions.single.imported_checkpoint", imported)
    return source


def test_the_import_of_a_model_is_the_reason_to_wait(
    no_settings: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the answer to a question and for the probe, until it has failed; its error ends the program as it is."""
    ended = Event()

    def importing(*given: object, report: Callable[[str], None]) -> Path:
        report("tiny is being imported, for 15 seconds so far")
        assert ended.wait(20)
        raise ModelImportError("someone/tiny was not imported: it has 3 labels")

    place_of(monkeypatch, tmp_path, importing)
    settings = read_settings({"model": "someone/tiny@v1"})
    single, errors, versions = opened(settings, load)
    single.start()
    wait_until(lambda: versions.snapshot.reason != "")
    with pytest.raises(ServiceError, match=r"tiny is being imported, for 15 seconds so far; ask again") as refused:
        versions.check_serving()
    assert (refused.value.retry_after, versions.snapshot.state) == (10, State.LOADING)
    assert unready_reason(versions.snapshot, settings).startswith("tiny is being imported")
    ended.set()
    assert str(errors.get(timeout=20)) == "someone/tiny was not imported: it has 3 labels"


def test_an_imported_model_is_loaded_in_the_form_of_the_settings(
    no_settings: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's id is another name of it. A decoder has weights alone."""
    asked: list[object] = []

    def imported(source: Source, precisions: object, *, report: object) -> Path:
        asked.append(precisions)
        raise ModelImportError("this is far enough")

    place_of(monkeypatch, tmp_path, imported)
    given = {"model": "someone/tiny@v1", "aliases": "mine"}
    for more in ({}, {"precision": "int8"}, {"backend": "torch"}):
        settings = read_settings({**given, **more})
        assert settings.alias_names == {"mine", "someone/tiny"}
        single, errors, _ = opened(settings, load)
        single.start()
        errors.get(timeout=20)
    (tmp_path / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"]}')
    single, errors, _ = opened(read_settings(given), load)
    single.start()
    errors.get(timeout=20)
    assert asked == [("fp32",), ("int8",), (), ()]
