"""Shows the progress of long work: a bar on a terminal, or a line every 30 seconds in a log."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

SECONDS = 30.0
"""The seconds between two lines in a log."""
FULL = re.compile(r"\| *(\S+)/\1 \[")
"""A bar that has reached its total, which tqdm draws again when it is closed."""


class _Log:
    """A file for tqdm that writes each redrawn bar to standard error as a new line, and the full bar once."""

    def __init__(self) -> None:
        self._ended = False

    def write(self, text: str) -> None:
        if (line := text.strip("\r\n")) and not self._ended:
            sys.stderr.write(line + "\n")
            self._ended = FULL.search(line) is not None

    def flush(self) -> None:
        sys.stderr.flush()


def progress(items: Iterable[Any] | None = None, *, shown: bool = True, **options: Any) -> Any:
    """A tqdm bar with the given options, or a line every 30 seconds if standard error is not a terminal.

    Work of less than 30 seconds writes no line to a log. If `shown` is False, nothing is written.
    """
    if not shown or sys.stderr.isatty():
        return tqdm(items, disable=not shown, **options)
    timing = {"delay": SECONDS, "mininterval": SECONDS, "maxinterval": SECONDS, "miniters": 1}
    return tqdm(items, file=_Log(), ncols=100, ascii=True, **(options | timing))
