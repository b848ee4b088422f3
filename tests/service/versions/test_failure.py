"""The one table of errors: what each means for a version, and whether loading it again may succeed."""

from __future__ import annotations

import errno
import os

import pytest

from cerberank_models.checkpoint.folder import ChangedFileError, CheckpointError, MissingFileError, SurplusFileError
from cerberank_models.checkpoint.store.checkpoint_store import NotInStoreError
from cerberank_models.golden import GoldenMismatchError
from cerberank_models.rank_pairs import NonFiniteScoreError
from cerberank_service.telemetry.series import COPY_CAUSES
from cerberank_service.versions.failure import PASSING, Cause, FailedError, TooSlowError, failure_of

ILLEGAL = "CUDA error: an illegal memory access was encountered"


class PanicError(BaseException):
    """Like the panic of a library in Rust, no Exception."""


def of_system(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (MissingFileError("it lacks Too many open files"), Cause.TORN),
        (NotInStoreError("m has no version 1"), Cause.TORN),
        (FileNotFoundError(errno.ENOENT, "no such file"), Cause.TORN),
        (ChangedFileError("Cannot allocate memory does not have the SHA-256"), Cause.CHANGED),
        (SurplusFileError(f"it holds {ILLEGAL}, out of memory"), Cause.SURPLUS),
        (CheckpointError(f"config.json: {ILLEGAL}"), Cause.MALFORMED),
        (NonFiniteScoreError("out of memory"), Cause.NOT_FINITE),
        (GoldenMismatchError("other scores"), Cause.GOLDEN),
        (TooSlowError("it takes 7 ms"), Cause.SLOW),
        (MemoryError(), Cause.TOO_BIG),
        (RuntimeError("CUDA out of memory"), Cause.TOO_BIG),
        (RuntimeError("no such operator"), Cause.UNUSABLE),
        (RuntimeError(ILLEGAL), Cause.UNUSABLE),
        (PanicError("divided by zero"), Cause.UNUSABLE),
        (of_system(errno.EIO), Cause.UNUSABLE),
        (of_system(errno.ENOSPC), Cause.DISK),
        (of_system(errno.EDQUOT), Cause.DISK),
        (of_system(errno.EMFILE), Cause.PROCESS),
        (of_system(errno.EAGAIN), Cause.PROCESS),
        (of_system(errno.ENOMEM), Cause.PROCESS),
        (CheckpointError("tokenizer.json cannot be used: Too many open files"), Cause.PROCESS),
        (RuntimeError("can't start new thread"), Cause.PROCESS),
        (FailedError(Cause.TIME, ILLEGAL), Cause.TIME),
    ],
    ids=repr,
)
def test_an_error_has_one_cause(error: BaseException, cause: Cause) -> None:
    """The type decides before the text, which has names that others chose; only what passes is tried again."""
    failure = failure_of(error)
    assert failure.cause is cause
    assert failure.is_passing == (cause.value in COPY_CAUSES)
    assert failure.message == (str(error) or "MemoryError")
    assert failure.device_failed == (ILLEGAL in str(error) and cause is Cause.UNUSABLE)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (MemoryError(), Cause.PROCESS),
        (of_system(errno.EIO), Cause.STORE),
        (of_system(errno.ENOSPC), Cause.DISK),
        (CheckpointError("it calls itself m@1"), Cause.MALFORMED),
        (RuntimeError("no such operator"), Cause.UNUSABLE),
    ],
    ids=repr,
)
def test_a_copy_fails_for_the_machine_or_the_store(error: Exception, cause: Cause) -> None:
    """While nothing of the version runs, memory and errors of the system are not its fault."""
    assert failure_of(error, copying=True).cause is cause


def test_the_causes_that_pass_are_the_labels_of_the_metric() -> None:
    """`cerberank_copy_failures_total` has a series for each from the start."""
    assert {cause.value for cause in PASSING} == set(COPY_CAUSES)
