"""Output of commands, and the error for options that do not go together."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


class UsageError(ValueError):
    """The options of a command do not go together; the program exits with code 2, as for an unknown option."""


def say(line: str) -> None:
    """Write a line to standard output and flush it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def say_written(*files: tuple[Path | None, str]) -> None:
    """Write a line for each file that a command has written: path and content. A path that is None is left out."""
    for path, content in files:
        if path is not None:
            say(f"{path}: {content}")


def note(line: str) -> None:
    """Write a line about the progress of the work to standard error, and flush it."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def say_json(value: Any) -> None:
    """Write a value as one line of JSON."""
    say(json.dumps(value))
