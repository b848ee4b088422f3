"""Names of measures, as ir_measures writes them: `AP`, `RR@10`, `P@1`, `R(rel=2)@100`, `nDCG(dcg='exp-log2')@10`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["AP", "RR", "P", "R", "Rprec", "Success", "nDCG"]
ALIASES = {
    "map": "AP",
    "mrr": "RR",
    "precision": "P",
    "recall": "R",
    **{kind.lower(): kind for kind in get_args(Kind)},
}
"""Kinds by the names that are understood, in lower case."""
NEED_CUTOFF = ("P", "R", "Success")
NO_CUTOFF = ("Rprec",)
NAME = re.compile(r"([A-Za-z]+)(?:\(([^()]*)\))?(?:@([1-9][0-9]*))?")
SPLIT = re.compile(r"[\s,]+(?![^()]*\))")
"""Blanks and commas that are not between brackets."""
REL = re.compile(r"[1-9][0-9]*")


class MeasureNameError(ValueError):
    """No measure has this name; the message says which there are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """One measure of a ranking."""

    kind: Kind
    cutoff: int | None = None
    """How many places count; None for all."""
    rel: int = 1
    """The least grade that is relevant; nDCG has none."""
    exponential: bool = False
    """Whether the gain of a grade g in nDCG is 2^g - 1, and not g."""

    def __str__(self) -> str:
        options = [f"rel={self.rel}"] * (self.rel != 1) + ["dcg='exp-log2'"] * self.exponential
        brackets = f"({','.join(options)})" if options else ""
        return f"{self.kind}{brackets}{'' if self.cutoff is None else f'@{self.cutoff}'}"


def parse_measures(text: str) -> tuple[Measure, ...]:
    """The measures of a list between blanks or commas. Raises MeasureNameError, also for a repeated or no name.

    >>> [str(measure) for measure in parse_measures("MAP nDCG@10, AP(rel=2)")]
    ['AP', 'nDCG@10', 'AP(rel=2)']
    """
    measures = tuple(parse_measure(name) for name in SPLIT.split(text) if name)
    if not measures:
        raise MeasureNameError("no measure is named")
    if repeated := [each for each in measures if measures.count(each) > 1]:
        raise MeasureNameError(f"the measure {repeated[0]} is named twice")
    return measures


def parse_measure(name: str) -> Measure:
    """The measure of one name. Raises MeasureNameError."""
    match = NAME.fullmatch(name)
    kind = ALIASES.get(match.group(1).lower()) if match else None
    if match is None or kind is None:
        raise MeasureNameError(f"{name!r} is no measure; there are: {', '.join(get_args(Kind))}")
    cutoff = int(match.group(3)) if match.group(3) else None
    if (kind in NEED_CUTOFF and cutoff is None) or (kind in NO_CUTOFF and cutoff is not None):
        raise MeasureNameError(f"{name!r}: {kind} {'needs a' if cutoff is None else 'has no'} number of places after @")
    given = _options(name, match.group(2) or "")
    known = ("dcg",) if kind == "nDCG" else ("rel",)
    if unknown := [option for option in given if option not in known]:
        raise MeasureNameError(f"{name!r}: {kind} has no option {unknown[0]!r}, only {known[0]!r}")
    if not REL.fullmatch(rel := given.get("rel", "1")):
        raise MeasureNameError(f"{name!r}: rel is a grade of 1 or more, not {rel!r}")
    if (gain := given.get("dcg", "log2")) not in ("log2", "exp-log2"):
        raise MeasureNameError(f"{name!r}: dcg is 'log2' or 'exp-log2', not {gain!r}")
    return Measure(kind=kind, cutoff=cutoff, rel=int(rel), exponential=gain == "exp-log2")


def _options(name: str, text: str) -> Mapping[str, str]:
    pairs = [[part.strip() for part in option.split("=")] for option in text.split(",") if option.strip()]
    if any(len(pair) != 2 for pair in pairs) or len({pair[0] for pair in pairs}) < len(pairs):
        raise MeasureNameError(f"{name!r}: expected key=value between the brackets, each key once")
    return {key: value.strip("'\"") for key, value in pairs}
