"""The failure of a version: its cause, and whether another attempt may succeed.

`failure_of` makes it where an exception is caught. The process that copies and tries a version sends it on as JSON.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import Enum

from cerberank_models.checkpoint.folder import ChangedFileError, CheckpointError, MissingFileError, SurplusFileError
from cerberank_models.checkpoint.store.checkpoint_store import NotInStoreError
from cerberank_models.golden import GoldenMismatchError
from cerberank_models.rank_pairs import NonFiniteScoreError
from cerberank_service.engine.faults import Fault, fault_of, is_shortage, text_of


class TooSlowError(RuntimeError):
    """The warm-up took longer than the settings allow."""


class Cause(Enum):
    """The cause of a failure; the value is a metric's label."""

    TORN = "torn"
    """A file is missing."""
    CHANGED = "changed"
    """A file does not match its hash."""
    SURPLUS = "surplus"
    """A file is present that the manifest does not name."""
    MALFORMED = "malformed"
    """A file's content is invalid, or its model and version differ from those in the store's path."""
    NOT_FINITE = "not_finite"
    """A score is NaN or infinite."""
    GOLDEN = "golden"
    """The golden scores are not reproduced."""
    SLOW = "slow"
    """The warm-up is slower than `CERBERANK_SLOWEST_MS`."""
    TOO_BIG = "too_big"
    """The version does not fit into the memory limit, or into the device's memory."""
    UNUSABLE = "unusable"
    """The backend cannot open or run it."""
    STORE = "store"
    """The store does not answer, or does not have the version any more."""
    DISK = "disk"
    """There is no space for the copy."""
    TIME = "time"
    """The time limit of copying or trying is over."""
    PROCESS = "process"
    """The process that copies and tries cannot run, or the machine lacks descriptors, threads or memory."""


PASSING = frozenset({Cause.STORE, Cause.DISK, Cause.TIME, Cause.PROCESS})
"""Causes that are not the version's fault. For all others the version is rejected."""
DAMAGED = frozenset({Cause.TORN, Cause.CHANGED, Cause.SURPLUS})
"""Causes that the files have by themselves. Their messages have names of files, which may be texts of other errors."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

BY_TYPE: tuple[tuple[type[Exception], Cause], ...] = (
    (MissingFileError, Cause.TORN),
    (ChangedFileError, Cause.CHANGED),
    (SurplusFileError, Cause.SURPLUS),
    (NotInStoreError, Cause.TORN),
    (FileNotFoundError, Cause.TORN),
    (CheckpointError, Cause.MALFORMED),
    (NonFiniteScoreError, Cause.NOT_FINITE),
    (GoldenMismatchError, Cause.GOLDEN),
    (TooSlowError, Cause.SLOW),
)
"""Causes by error type; the first match decides, so subclasses come before their base classes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """The reason that a version does not serve; the message is for operators."""

    cause: Cause
    message: str
    killed: bool = False
    """True if a process was killed while it loaded the version: by the system, by somebody, or at its limit of time.

    That may be the version's fault, or that of a busy machine."""
    device_failed: bool = False
    """True if the device has failed, so that the process must be restarted."""

    @property
    def is_passing(self) -> bool:
        """True if the version is not at fault, so that another attempt may succeed."""
        return self.cause in PASSING


class FailedError(Exception):
    """A version failed, for a reason that was found without an exception or in another process."""

    def __init__(self, cause: Cause, message: str, *, killed: bool = False) -> None:
        """The fields of the failure."""
        super().__init__(message)
        self.failure = Failure(cause=cause, message=message, killed=killed)


def failure_of(error: BaseException, *, copying: bool = False) -> Failure:
    """The failure that `error` means for a version; `copying` while the version is copied, and nothing runs it.

    The type decides before the text, because a version's files and golden questions determine parts of the text.
    """
    if isinstance(error, FailedError):
        return error.failure
    cause = next((cause for kind, cause in BY_TYPE if isinstance(error, kind)), None)
    fault = Fault.OTHER if cause is not None else fault_of(error)
    if cause not in DAMAGED and getattr(error, "errno", None) in FULL:
        cause = Cause.DISK
    elif cause not in DAMAGED and (is_shortage(error) or (copying and isinstance(error, MemoryError))):
        cause = Cause.PROCESS
    elif fault is Fault.MEMORY:
        cause = Cause.TOO_BIG
    elif cause is None:
        cause = Cause.STORE if copying and isinstance(error, OSError) else Cause.UNUSABLE
    return Failure(cause=cause, message=text_of(error), device_failed=fault is Fault.DEVICE)
