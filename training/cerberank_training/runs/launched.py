"""The processes of a command as torchrun describes them in the environment. Importing it loads no torch."""

from __future__ import annotations

import os

from cerberank_models.output import note


def launched_processes() -> int:
    """The number of processes that torchrun starts; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first_process() -> bool:
    """True for a single process, and for the first of those that torchrun starts."""
    return os.environ.get("RANK", "0") == "0"


def note_of(command: str, line: str) -> None:
    """Write a line about the work of `train COMMAND`; of several processes, the first one does."""
    if is_first_process():
        note(f"cerberank train {command}: {line}")
