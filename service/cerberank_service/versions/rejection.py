"""The reasons for rejecting a version, derived from the type of the error; they are labels of a metric."""

from __future__ import annotations

import errno
import os
from enum import Enum

from cerberank_models.checkpoint.folder import ChangedFileError, CheckpointError, MissingFileError, SurplusFileError
from cerberank_models.checkpoint.store.protocol import NotInStoreError
from cerberank_models.golden import GoldenMismatchError
from cerberank_models.rank_pairs import NonFiniteScoreError
from cerberank_service.engine.faults import Fault, fault_of


class TooSlowError(RuntimeError):
    """The warm-up took longer than the settings allow."""


class Reason(Enum):
    """The reason for rejecting a version; the value is the metric's label."""

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


class RejectedError(RuntimeError):
    """A version cannot serve, as another process has found out; the message is for operators."""

    def __init__(self, reason: Reason, message: str) -> None:
        """`reason` is the reason that `reason_of` gives."""
        super().__init__(message)
        self.reason = reason


BY_TYPE: tuple[tuple[type[Exception], Reason], ...] = (
    (MissingFileError, Reason.TORN),
    (ChangedFileError, Reason.CHANGED),
    (SurplusFileError, Reason.SURPLUS),
    (NotInStoreError, Reason.TORN),
    (FileNotFoundError, Reason.TORN),
    (CheckpointError, Reason.MALFORMED),
    (NonFiniteScoreError, Reason.NOT_FINITE),
    (GoldenMismatchError, Reason.GOLDEN),
    (TooSlowError, Reason.SLOW),
)
"""Reasons by error type; the first match decides, so subclasses come before their base classes."""

SHORTAGES = {number: os.strerror(number) for number in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)}
DAMAGED = {Reason.TORN, Reason.CHANGED, Reason.SURPLUS}
"""Reasons that the files have by themselves. Their messages have names of files, which may be texts of other errors."""
NO_THREAD = "can't start new thread"


def is_shortage(number: int | None, message: str) -> bool:
    """True if an error, by its `errno` or its text, says that the machine lacks descriptors, threads or memory.

    The text is needed because errors of libraries in other languages only have the system's text.
    """
    return number in SHORTAGES or any(text in message for text in (NO_THREAD, *SHORTAGES.values()))


def reason_of(error: BaseException) -> Reason:
    """The reason to which `error` belongs.

    The type decides before the text, because a version's files and golden questions determine parts of the text.
    """
    if isinstance(error, RejectedError):
        return error.reason
    for kind, reason in BY_TYPE:
        if isinstance(error, kind):
            return reason
    return Reason.TOO_BIG if fault_of(error) is Fault.MEMORY else Reason.UNUSABLE
