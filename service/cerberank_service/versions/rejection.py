"""Why a version cannot serve: few kinds for the metric, told by the type of the error."""

from __future__ import annotations

from enum import Enum

from cerberank_models.checkpoint.folder import ChangedFileError, CheckpointError, MissingFileError, SurplusFileError
from cerberank_models.checkpoint.store.contract import NotInStoreError
from cerberank_models.rank import GoldenMismatchError, NonFiniteScoreError


class TooSlowError(RuntimeError):
    """The warm-up took longer than the settings allow."""


class Reason(Enum):
    """What was wrong; the value is the metric's label."""

    TORN = "torn"
    """A file is missing."""
    CHANGED = "changed"
    """A file does not have its hash."""
    SURPLUS = "surplus"
    """A file is there that the manifest does not name."""
    MALFORMED = "malformed"
    """A file does not say what it should, such as another name than the version lies under."""
    NOT_FINITE = "not_finite"
    """It scores NaN."""
    GOLDEN = "golden"
    """It does not reproduce its golden scores."""
    SLOW = "slow"
    TOO_BIG = "too_big"
    """It does not fit into the memory that is allowed."""
    UNUSABLE = "unusable"
    """What runs it cannot open it, or fails on it."""


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
    (MemoryError, Reason.TOO_BIG),
)
"""The first that fits; narrow ones stand before what they derive from."""


def reason_of(error: Exception) -> Reason:
    """The kind of `error`."""
    return next((reason for kind, reason in BY_TYPE if isinstance(error, kind)), Reason.UNUSABLE)
