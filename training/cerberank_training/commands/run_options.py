"""Options that commands which train have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NewType

from cyclopts import Parameter, Token

from cerberank_training.runs.dev_set import Size

DataSpec = NewType("DataSpec", str)
"""Data as FORMAT:PATH; calls from Python may give rows in memory instead."""


def data_help(what: str) -> str:
    """The help of an option that names questions."""
    return f"{what}, as FORMAT:PATH, such as jsonl:data.jsonl; docs/data.md has all formats."


def _dev_size(type_: Any, tokens: Sequence[Token]) -> Size:
    words = tokens[0].value
    if words != "all" and not (words.isdecimal() and int(words)):
        raise ValueError(f"takes a whole number of at least 1, or all, not {words!r}")
    return "all" if words == "all" else int(words)


DevQuestions = Annotated[
    int | Literal["all"] | None,
    Parameter(
        converter=_dev_size,
        n_tokens=1,
        help="Number of questions of --dev to draw, or all (default: 300; for asnq all).",
    ),
]
Track = Annotated[
    tuple[Literal["tensorboard", "wandb", "mlflow"], ...],
    Parameter(help="Tracker to send the figures of OUT/log.jsonl to; repeat for several."),
]
