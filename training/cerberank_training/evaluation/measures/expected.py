"""The value of a measure for one question: its expectation over a random order of tied candidates, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, log2

import numpy as np
from numpy.typing import NDArray

from cerberank_training.evaluation.measures.names import Measure

Integers = NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class TiedGroup:
    """Candidates that share a rank."""

    before: int
    """The number of candidates above them."""
    size: int
    relevant: int
    gain: float
    """The sum of their gains."""

    def places(self, cutoff: int) -> int:
        """How many of their places are among the first `cutoff`."""
        return min(max(cutoff - self.before, 0), self.size)


def expected_measure(measure: Measure, labels: Integers, ranks: Integers, missed: Sequence[int] = ()) -> float:
    """The value in 0..1 of grades `labels[n]` ordered by `ranks[n]` (0 best, equal = tied).

    `missed` are the grades of relevant documents that are no candidates. 0 where no document has the grade `rel`, as in
    trec_eval.

    >>> from cerberank_training.evaluation.measures.names import parse_measure
    >>> labels, tied = np.array([1, 0, 2]), np.array([0, 0, 1])
    >>> [expected_measure(parse_measure(name), labels, tied, [1]) for name in ("P@1", "R@2", "RR", "AP(rel=2)")]
    [0.5, 0.3333333333333333, 0.75, 0.3333333333333333]
    """
    grades: list[int] = sorted([*labels[labels > 0].tolist(), *missed], reverse=True)
    total = sum(grade >= measure.rel for grade in grades)
    if not total:
        return 0.0
    groups = tied_groups(measure, labels, ranks)
    cutoff = measure.cutoff or len(labels) + len(missed)
    match measure.kind:
        case "AP":
            value = sum(_precisions(groups, cutoff)) / total
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


def tied_groups(measure: Measure, labels: Integers, ranks: Integers) -> list[TiedGroup]:
    """The groups of equal rank, best first."""
    groups, before = list[TiedGroup](), 0
    for rank in np.unique(ranks):
        grades = labels[ranks == rank].tolist()
        relevant = sum(grade >= measure.rel for grade in grades)
        groups.append(TiedGroup(before, len(grades), relevant, sum(_gain(measure, grade) for grade in grades)))
        before += len(grades)
    return groups


def _gain(measure: Measure, grade: int) -> float:
    return 2.0**grade - 1 if measure.exponential else float(grade)


def _hits(groups: Sequence[TiedGroup], cutoff: int) -> float:
    """The expected number of relevant candidates in the first `cutoff` places."""
    return sum(group.relevant * group.places(cutoff) / group.size for group in groups)


def _precisions(groups: Sequence[TiedGroup], cutoff: int) -> list[float]:
    """For each place, the expected precision there if its candidate is relevant, else 0."""
    values, seen = list[float](), 0
    for group in groups:
        for i in range(1, group.places(cutoff) + 1) if group.relevant else ():
            # The expected number of the group's relevant candidates in the i - 1 places before a relevant one.
            before = (i - 1) * (group.relevant - 1) / (group.size - 1) if group.size > 1 else 0.0
            values.append(group.relevant / group.size * (seen + 1 + before) / (group.before + i))
        seen += group.relevant
    return values


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
        for i in range(1, group.places(cutoff) + 1)
    )
