"""The command of a process of our own that runs Python."""

from __future__ import annotations

import sys


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module with this interpreter, which imports nothing from the working folder.

    The working folder may be a model that somebody else wrote, so a file such as `tokenizers.py` in it must not replace
    a library. Without `-P`, `python -m` looks there first. Folders that the user sets in PYTHONPATH are still searched.
    """
    return [sys.executable, "-P", "-m", module, *arguments]  # noqa: TID251 - the one place that starts Python
