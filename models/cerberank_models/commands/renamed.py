"""Options, keys of recipes and settings in records that have other names than in earlier versions."""

from __future__ import annotations

from collections.abc import Container
from types import MappingProxyType

from cyclopts import CycloptsError, UnknownOptionError

RENAMED = MappingProxyType(
    {
        "own": ("negatives",),
        "hard": ("hard_negatives",),
        "random": ("other_negatives",),
        "questions_per_step": ("examples_per_step",),
        "triples_per_step": ("examples_per_step",),
        "soft_loss": ("teacher_loss",),
        "listwise": ("listwise_weight",),
    }
)
"""The new names by the old one, as keys of recipes write them. A command has one of several."""


def new_name(old: str, names: Container[str]) -> str | None:
    """The name of `names` that replaces an old one; None if there is none.

    >>> new_name("own", ["steps", "negatives"]), new_name("own", ["steps"])
    ('negatives', None)
    """
    return next((name for name in RENAMED.get(old, ()) if name in names), None)


def error_message(error: CycloptsError) -> str:
    """The message of an error on a command line, in one line; for an old option it has the new name."""
    if isinstance(error, UnknownOptionError):
        option = (error.token.keyword or error.token.value).partition("=")[0]
        names = [name[2:].replace("-", "_") for each in error.argument_collection for name in each.names]
        if new := new_name(option.lstrip("-").replace("-", "_"), names):
            return f"{option} was renamed to --{new.replace('_', '-')}"
    return " ".join(str(error).split())
