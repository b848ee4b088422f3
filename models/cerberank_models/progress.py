"""The progress of long work: a bar on a terminal, a line every half minute in a log."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

SECONDS = 30.0
"""Between two lines of a log."""


class _Log:
    """Standard error for a bar that redraws its line: every drawing becomes a line of its own."""

    def write(self, text: str) -> None:
        if line := text.strip("\r\n"):
            sys.stderr.write(line + "\n")

    def flush(self) -> None:
        sys.stderr.flush()


def progress(items: Iterable[Any] | None = None, *, shown: bool = True, **options: Any) -> Any:
    """The bar of tqdm with its options; where standard error is not a terminal, a line every 30 seconds.

    Work of less than 30 seconds leaves no line in a log. Without `shown` nothing is written.
    """
    if not shown or sys.stderr.isatty():
        return tqdm(items, disable=not shown, **options)
    timing = {"delay": SECONDS, "mininterval": SECONDS, "maxinterval": SECONDS, "miniters": 1}
    return tqdm(items, file=_Log(), ncols=100, ascii=True, **(options | timing))
