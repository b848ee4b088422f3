"""Output of commands, and the error for options that do not go together."""

from __future__ import annotations

import json
import sys
from typing import Any


class UsageError(ValueError):
    """The options of a command do not go together; the program exits with code 2, as for an unknown option."""


def say(line: str) -> None:
    """Write a line to standard output and flush it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def note(line: str) -> None:
    """Write a line about the progress of the work to standard error, and flush it."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def say_json(value: Any) -> None:
    """Write a value as one line of JSON."""
    say(json.dumps(value))
