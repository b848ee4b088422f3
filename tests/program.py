"""The commands of the program, called in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cerberank.cli import main

from cerberank_models.commands import values


def program(words: str) -> Callable[[Sequence[str]], int]:
    """A command, such as `train distil`, as a function from its arguments to the exit code."""
    return lambda arguments: main([*words.split(), *arguments])


def replaced(words: Sequence[object], *changes: object) -> list[str]:
    """The words of a call in which every option of `changes` takes the place of the same option."""
    return values.replaced([str(word) for word in words], [str(change) for change in changes])
