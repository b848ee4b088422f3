"""A single checkpoint that cannot be served is reported to `cerberank serve`, which then ends."""

from __future__ import annotations

from queue import SimpleQueue

import pytest

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.golden import GoldenMismatchError
from cerberank_service.settings import Settings
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.versions.loading import Loaded
from cerberank_service.versions.registry import VersionRegistry
from cerberank_service.versions.single import SingleCheckpoint, UnusableError
from cerberank_service.versions.state import State


class PanicError(BaseException):
    """Like the panic of a library in Rust, no Exception."""


def reported(error: BaseException) -> tuple[Exception, VersionRegistry]:
    """The error that a checkpoint whose loader raises `error` reports, and the registry after it."""

    def fail(checkpoint: Checkpoint, settings: Settings) -> Loaded:
        raise error

    settings, errors = Settings(), SimpleQueue[Exception]()
    versions = VersionRegistry(settings, on_idle=lambda: None)
    single = SingleCheckpoint(settings, versions, Metrics(), fail)
    single.open(errors.put)
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
