"""The commands of the program, called in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cerberank.cli import main


def program(words: str) -> Callable[[Sequence[str]], int]:
    """A command, such as `train distil`, as a function from its arguments to the exit code."""
    return lambda arguments: main([*words.split(), *arguments])
