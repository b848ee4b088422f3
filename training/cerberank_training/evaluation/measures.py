"""Measures by the names of ir_measures, such as `AP(rel=2)` and `nDCG@10`, exact under ties.

The value for one question is the expectation over a random order of tied candidates, in closed form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, log2
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.integer]
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
"""Blanks and commas outside of brackets."""
REL = re.compile(r"[1-9][0-9]*")


class MeasureNameError(ValueError):
    """No measure has this name; the message lists the measures."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """One measure of a ranking."""

    kind: Kind
    cutoff: int | None = None
    """The number of first places that count; None for all."""
    rel: int = 1
    """The least grade of a relevant document; nDCG does not use it."""
    exponential: bool = False
    """True if a grade g has the gain 2^g - 1 in nDCG, and not g."""

    def __str__(self) -> str:
        options = [f"rel={self.rel}"] * (self.rel != 1) + ["dcg='exp-log2'"] * self.exponential
        brackets = f"({','.join(options)})" if options else ""
        return f"{self.kind}{brackets}{'' if self.cutoff is None else f'@{self.cutoff}'}"


def parse_measures(text: str) -> tuple[Measure, ...]:
    """The measures of a list with blanks or commas. Raises MeasureNameError, also for an empty list or a repeated name.

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
    """The measure with this name. Raises MeasureNameError."""
    match = NAME.fullmatch(name)
    kind = ALIASES.get(match.group(1).lower()) if match else None
    if match is None or kind is None:
        raise MeasureNameError(f"{name!r} is not a measure; there are: {', '.join(get_args(Kind))}")
    cutoff = int(match.group(3)) if match.group(3) else None
    if (kind in NEED_CUTOFF and cutoff is None) or (kind in NO_CUTOFF and cutoff is not None):
        raise MeasureNameError(f"{name!r}: {kind} {'needs a' if cutoff is None else 'has no'} number of places after @")
    options = _options(name, match.group(2) or "")
    known = ("dcg",) if kind == "nDCG" else ("rel",)
    if unknown := [option for option in options if option not in known]:
        raise MeasureNameError(f"{name!r}: {kind} has no option {unknown[0]!r}, only {known[0]!r}")
    if not REL.fullmatch(rel := options.get("rel", "1")):
        raise MeasureNameError(f"{name!r}: rel is a grade of 1 or more, not {rel!r}")
    if (gain := options.get("dcg", "log2")) not in ("log2", "exp-log2"):
        raise MeasureNameError(f"{name!r}: dcg is 'log2' or 'exp-log2', not {gain!r}")
    return Measure(kind=kind, cutoff=cutoff, rel=int(rel), exponential=gain == "exp-log2")


def _options(name: str, text: str) -> Mapping[str, str]:
    pairs = [[part.strip() for part in option.split("=")] for option in text.split(",") if option.strip()]
    if any(len(pair) != 2 for pair in pairs) or len({pair[0] for pair in pairs}) < len(pairs):
        raise MeasureNameError(f"{name!r}: expected key=value between the brackets, each key once")
    return {key: value.strip("'\"") for key, value in pairs}


@dataclass(frozen=True, slots=True)
class TiedGroup:
    """Candidates that share a rank."""

    before: int
    """The number of candidates above them."""
    size: int
    relevant: int
    gain: float
    """The sum of the candidates' gains."""

    def places(self, cutoff: int) -> int:
        """The number of the group's places that are among the first `cutoff`."""
        return min(max(cutoff - self.before, 0), self.size)


def expected_measures(
    measures: Mapping[str, Measure], labels: Integers, ranks: Integers, missed: Sequence[int] = ()
) -> dict[str, float]:
    """The values (0 to 1) by the measures' names, for grades `labels[n]` in the order of `ranks[n]`.

    Rank 0 is best, and equal ranks are ties. `missed` are the grades of relevant documents that are not candidates. As
    in trec_eval, a value is 0 if no document has the grade `rel`.

    >>> labels, tied = np.array([1, 0, 2]), np.array([0, 0, 1])
    >>> expected_measures({name: parse_measure(name) for name in ("P@1", "R@2", "RR")}, labels, tied, [1])
    {'P@1': 0.5, 'R@2': 0.3333333333333333, 'RR': 0.75}
    """
    grades: list[int] = sorted([*labels[labels > 0].tolist(), *missed], reverse=True)
    dense = np.unique(ranks, return_inverse=True)[1].reshape(-1)
    groups: dict[tuple[int, bool], list[TiedGroup]] = {}
    values = {}
    for name, measure in measures.items():
        key = measure.rel, measure.exponential
        if key not in groups:
            groups[key] = _tied_groups(measure, labels, dense)
        values[name] = _value(measure, groups[key], grades, len(labels) + len(missed))
    return values


def _value(measure: Measure, groups: Sequence[TiedGroup], grades: Sequence[int], documents: int) -> float:
    total = sum(grade >= measure.rel for grade in grades)
    if not total:
        return 0.0
    cutoff = measure.cutoff or documents
    match measure.kind:
        case "AP":
            value = _precisions(groups, cutoff) / total
        case "RR":
            value = _reciprocal_rank(groups, cutoff)
        case "P":
            value = _hits(groups, cutoff) / cutoff
        case "R":
            value = _hits(groups, cutoff) / total
        case "Rprec":
            value = _hits(groups, total) / total
        case "Success":
            value = _success(groups, cutoff)
        case "nDCG":
            ideal = sum(_gain(measure, grade) / log2(place + 1) for place, grade in enumerate(grades[:cutoff], start=1))
            value = _discounted(groups, cutoff) / ideal
    return value


def _tied_groups(measure: Measure, labels: Integers, dense: Integers) -> list[TiedGroup]:
    """The groups of equal ranks, best first; `dense` are ranks without gaps."""
    gains = np.exp2(labels) - 1 if measure.exponential else labels
    sizes = np.bincount(dense)
    relevant = np.bincount(dense, weights=labels >= measure.rel).astype(np.int64)
    columns = (np.cumsum(sizes) - sizes, sizes, relevant, np.bincount(dense, weights=gains))
    return [TiedGroup(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def _gain(measure: Measure, grade: int) -> float:
    return 2.0**grade - 1 if measure.exponential else float(grade)


def _hits(groups: Sequence[TiedGroup], cutoff: int) -> float:
    """The expected number of relevant candidates in the first `cutoff` places."""
    return sum(group.relevant * group.places(cutoff) / group.size for group in groups)


def _precisions(groups: Sequence[TiedGroup], cutoff: int) -> float:
    """The sum over places of the expected precision there, which is 0 if the place's candidate is not relevant."""
    value, seen = 0.0, 0
    for group in groups:
        for i in range(1, group.places(cutoff) + 1) if group.relevant else ():
            # The expected number of relevant candidates of the group in the i - 1 places before a relevant one.
            before = (i - 1) * (group.relevant - 1) / (group.size - 1) if group.size > 1 else 0.0
            value += group.relevant / group.size * (seen + 1 + before) / (group.before + i)
        seen += group.relevant
    return value


def _reciprocal_rank(groups: Sequence[TiedGroup], cutoff: int) -> float:
    first = next((group for group in groups if group.relevant), None)
    if first is None:
        return 0.0
    orders = comb(first.size, first.relevant)
    return sum(
        comb(first.size - i, first.relevant - 1) / orders / (first.before + i)
        for i in range(1, first.places(cutoff) + 1)
    )


def _success(groups: Sequence[TiedGroup], cutoff: int) -> float:
    """The probability that a relevant candidate is in the first `cutoff` places."""
    first = next((group for group in groups if group.relevant), None)
    if first is None:
        return 0.0
    places = first.places(cutoff)
    return 1.0 - comb(first.size - first.relevant, places) / comb(first.size, places)


def _discounted(groups: Sequence[TiedGroup], cutoff: int) -> float:
    return sum(
        group.gain / group.size / log2(group.before + i + 1)
        for group in groups
        if group.gain
        for i in range(1, group.places(cutoff) + 1)
    )
