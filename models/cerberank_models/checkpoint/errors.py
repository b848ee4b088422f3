"""The errors for folders that are not valid checkpoints."""

from __future__ import annotations

from collections.abc import Iterable

MOST_LISTED = 10
"""The most names that a message lists."""


class CheckpointError(ValueError):
    """The folder is not a valid checkpoint; the message names the file and what is wrong with it."""


class MissingFileError(CheckpointError):
    """A required file is missing, so the copy was not finished."""


class SurplusFileError(CheckpointError):
    """The folder has a file that its manifest does not name."""


class ChangedFileError(CheckpointError):
    """The hash of a file differs from the hash in the manifest."""


def listing(names: Iterable[str]) -> str:
    """The first MOST_LISTED names in alphabetical order, and how many more there are.

    >>> listing(["b", "a"]), listing(str(number) for number in range(10, 25))
    ('a, b', '10, 11, 12, 13, 14, 15, 16, 17, 18, 19 and 5 more')
    """
    ordered = sorted(names)
    more = f" and {len(ordered) - MOST_LISTED} more" if len(ordered) > MOST_LISTED else ""
    return ", ".join(ordered[:MOST_LISTED]) + more
