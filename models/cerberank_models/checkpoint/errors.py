"""The errors for folders that are not valid checkpoints."""

from __future__ import annotations


class CheckpointError(ValueError):
    """The folder is not a valid checkpoint; the message names the file and what is wrong with it."""


class MissingFileError(CheckpointError):
    """A required file is missing, so the copy was not finished."""


class SurplusFileError(CheckpointError):
    """The folder has a file that its manifest does not name."""


class ChangedFileError(CheckpointError):
    """The hash of a file differs from the hash in the manifest."""
