"""The figures of a shadow version on mirrored questions, and the rule that promotes it to stable."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from cerberank_service.rollout.comparison import Comparison

LEAST_CANDIDATES = 10
"""Different candidates of a question that counts for promotion. Two rankings of one candidate always agree: with such
questions clients could have any shadow promoted."""


class Verdict(Enum):
    """The decision of the promotion rule."""

    BY_HAND = "by_hand"
    """The rule is switched off."""
    WAIT = "wait"
    """There are too few questions so far."""
    KEEP = "keep"
    """The version failed on a question or exceeds a limit, and stays a shadow."""
    PROMOTE = "promote"
    """The version becomes stable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PromotionRule:
    """Promote a shadow after `questions` mirrored questions without a failure and within all limits."""

    questions: int
    """0 switches the rule off."""
    flip_percent: float = 10.0
    """Largest percentage of questions in which another candidate comes first."""
    overlap: float = 0.9
    """Smallest mean rank-biased overlap."""
    latency_ratio: float = 1.25
    """Largest ratio of the shadow's compute time to the stable version's."""


@dataclass(slots=True)
class Sums:
    """Sums over mirrored questions."""

    questions: int = 0
    flips: int = 0
    overlap: float = 0.0
    shift: float = 0.0
    stable_seconds: float = 0.0
    shadow_seconds: float = 0.0

    def add(self, comparison: Comparison, *, stable_seconds: float, shadow_seconds: float) -> None:
        """Add one question."""
        self.questions += 1
        self.flips += comparison.flipped
        self.overlap += comparison.overlap
        self.shift += comparison.shift
        self.stable_seconds += stable_seconds
        self.shadow_seconds += shadow_seconds

    @property
    def latency_ratio(self) -> float:
        """The ratio of the shadow's compute time to the stable version's."""
        return self.shadow_seconds / self.stable_seconds if self.stable_seconds > 0 else 1.0


@dataclass(slots=True)
class ShadowFigures:
    """What is known of the questions that were mirrored from `stable` to `shadow`."""

    stable: str
    shadow: str
    every: Sums = field(default_factory=Sums)
    """All mirrored questions."""
    judged: Sums = field(default_factory=Sums)
    """Those with LEAST_CANDIDATES, which alone count for promotion."""
    failures: int = 0
    """Questions that only the shadow failed to answer."""
    skipped: int = 0
    """Questions that were not mirrored: the service was busy, or the shadow cannot take them."""

    def add(self, comparison: Comparison, *, candidates: int, stable_seconds: float, shadow_seconds: float) -> None:
        """Add one mirrored question with so many different candidates."""
        for sums in (self.every, self.judged) if candidates >= LEAST_CANDIDATES else (self.every,):
            sums.add(comparison, stable_seconds=stable_seconds, shadow_seconds=shadow_seconds)

    def describe(self) -> dict[str, Any]:
        """Counts, and means over all mirrored questions that are null before the first one."""
        sums, count = self.every, self.every.questions
        return {
            "stable": self.stable,
            "shadow": self.shadow,
            "questions": count,
            "judged_questions": self.judged.questions,
            "flips": sums.flips,
            "failures": self.failures,
            "skipped": self.skipped,
            "flip_percent": 100.0 * sums.flips / count if count else None,
            "rank_biased_overlap": sums.overlap / count if count else None,
            "score_shift": sums.shift / count if count else None,
            "latency_ratio": sums.latency_ratio if count else None,
        }


def judge(figures: ShadowFigures, rule: PromotionRule) -> tuple[Verdict, str]:
    """The decision of `rule` about `figures`, with its reason."""
    if not rule.questions:
        return Verdict.BY_HAND, "CERBERANK_PROMOTE_AFTER is 0"
    if figures.failures:
        return Verdict.KEEP, f"it failed on {figures.failures} questions"
    sums, what = figures.judged, f"questions of at least {LEAST_CANDIDATES} candidates"
    if sums.questions < rule.questions:
        return Verdict.WAIT, f"{sums.questions} of {rule.questions} {what}"
    found = (
        (100.0 * sums.flips / sums.questions, "% of first candidates differ", rule.flip_percent, 1),
        (sums.overlap / sums.questions, "rank-biased overlap", rule.overlap, -1),
        (sums.latency_ratio, "times the latency", rule.latency_ratio, 1),
    )
    for value, unit, limit, sign in found:
        if sign * value > sign * limit:
            return Verdict.KEEP, f"{value:.3g} {unit}; the limit is {limit:g}"
    return Verdict.PROMOTE, f"{sums.questions} {what} within every limit"
