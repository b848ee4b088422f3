"""The lines of commands, and the error of a wrong call."""

from __future__ import annotations

import json
import sys
from typing import Any


class UsageError(ValueError):
    """The options of a call do not go together; the program ends with exit code 2, as for an unknown option."""


def say(line: str) -> None:
    """Write a line to standard output, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def note(line: str) -> None:
    """Write a line about the work to standard error, where it does not mix with results."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def say_json(value: Any) -> None:
    """Write a value as one line of JSON."""
    say(json.dumps(value))
