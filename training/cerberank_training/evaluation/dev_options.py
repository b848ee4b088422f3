"""Types of options for data, schedules, and the dev set that chooses weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token

from cerberank_models.drop import RatioSchedule
from cerberank_training.evaluation.question_metrics import METRICS
from cerberank_training.runs.run_data import DRAWN, Size

RECIPE_HELP = "Recipe (`cerberank train recipes` lists them) or TOML file."


def data_help(what: str) -> str:
    """The help of an option that names questions."""
    return f"{what}, as FORMAT:PATH (docs/data.md)."


def _schedules(type_: Any, tokens: Sequence[Token]) -> tuple[RatioSchedule, ...]:
    """One schedule for each time that the option is given."""
    schedules = []
    for token in tokens:
        lexical, colon, ratios = token.value.rpartition(":")
        try:
            parsed = tuple(map(float, ratios.split(","))) if ratios else ()
            schedules.append(RatioSchedule(parsed, lexical=float(lexical) if colon else 0.0))
        except ValueError:
            raise ValueError("takes numbers of at least 0 and below 1, such as 0.3,0.3 or 0.5:0.3,0.3") from None
    return tuple(schedules)


Schedules = Annotated[tuple[RatioSchedule, ...], Parameter(converter=_schedules, n_tokens=1)]
"""Drop ratios of the exits, after the share of the lexical layer and a colon if it drops too."""


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
        help=f"Number of questions of --dev to draw, or all (default: {DRAWN}; for asnq all).",
    ),
]


def _check_metric(type_: Any, name: str) -> None:
    if name not in METRICS:
        raise ValueError(f"Choose from {', '.join(METRICS)}.")


Select = Annotated[
    str, Parameter(help=f"Metric on dev to choose weights by: {', '.join(METRICS)}.", validator=_check_metric)
]
