"""Options, keys of recipes and settings in records that have other names than in earlier versions."""

from __future__ import annotations

from collections.abc import Container
from types import MappingProxyType

RENAMED = MappingProxyType(
    {
        "own": ("negatives", "own_share"),
        "hard": ("hard_negatives",),
        "random": ("other_negatives",),
        "questions_per_step": ("examples_per_step",),
        "triples_per_step": ("examples_per_step",),
        "soft_loss": ("teacher_loss",),
        "listwise": ("listwise_weight",),
        "segments": ("context",),
        "precisions": ("forms",),
        "no_export": ("forms none",),
        "calibrate": ("int8_texts",),
        "questions": ("data",),
        "alpha": ("drop_ratio",),
        "unanswered": ("without_positive", "unanswered_share"),
        "only": ("rows",),
        "metric": ("measure",),
        "workers": ("copies",),
    }
)
"""The new names by the old one, as keys of recipes write them. A command has one of several."""


def new_name(old: str, names: Container[str]) -> str | None:
    """The name of `names` that replaces an old one; None if there is none.

    >>> new_name("own", ["steps", "negatives"]), new_name("own", ["steps"])
    ('negatives', None)
    """
    return next((name for name in RENAMED.get(old, ()) if name.partition(" ")[0] in names), None)
