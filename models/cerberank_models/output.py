"""Output of commands, and the error for options that do not go together."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def installed_by(extra: str) -> str:
    """The advice for an extra that is missing. The package is in no index, where anybody could register its name."""
    return f"run in the checkout: pip install '.[{extra}]'"


def printable(text: str) -> str:
    r"""The text with control characters and line breaks replaced by escape sequences.

    >>> printable("a\n\x1b[31mb")
    'a\\n\\x1b[31mb'
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


class UsageError(ValueError):
    """The options of a command do not go together; the program exits with code 2, as for an unknown option."""


def say(text: str) -> None:
    """Write lines to standard output and flush it; control characters of names that others chose are escaped."""
    sys.stdout.write(_lines(text))
    sys.stdout.flush()


def say_written(*files: tuple[Path | None, str]) -> None:
    """Write a line for each file that a command has written: path and content. A path that is None is left out."""
    for path, content in files:
        if path is not None:
            say(f"{path}: {content}")


def note(text: str) -> None:
    """Write lines about the work to standard error and flush it; control characters are escaped as by `say`."""
    sys.stderr.write(_lines(text))
    sys.stderr.flush()


def _lines(text: str) -> str:
    return "".join(printable(line) + "\n" for line in text.split("\n"))


def say_json(value: Any) -> None:
    """Write a value as one line of JSON."""
    say(json.dumps(value))
