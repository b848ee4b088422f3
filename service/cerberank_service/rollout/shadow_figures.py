"""The figures of a shadow version on mirrored questions, and the rule that promotes it to stable."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from cerberank_service.rollout.comparison import Comparison


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
class ShadowFigures:
    """Sums over the questions that were mirrored from `stable` to `shadow`."""

    stable: str
    shadow: str
    questions: int = 0
    flips: int = 0
    overlap: float = 0.0
    shift: float = 0.0
    stable_seconds: float = 0.0
    shadow_seconds: float = 0.0
    failures: int = 0
    """Questions that only the shadow failed to answer."""
    skipped: int = 0
    """Questions that were not mirrored because the service was busy."""

    def add(self, comparison: Comparison, *, stable_seconds: float, shadow_seconds: float) -> None:
        """Add one mirrored question."""
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

    def describe(self) -> dict[str, Any]:
        """Counts, and means that are null before the first question."""
        count = self.questions
        means = {
            "flip_percent": 100.0 * self.flips / count if count else None,
            "rank_biased_overlap": self.overlap / count if count else None,
            "score_shift": self.shift / count if count else None,
            "latency_ratio": self.latency_ratio if count else None,
        }
        counts = {
            name: asdict(self)[name] for name in ("stable", "shadow", "questions", "flips", "failures", "skipped")
        }
        return counts | means


def judge(figures: ShadowFigures, rule: PromotionRule) -> tuple[Verdict, str]:
    """The decision of `rule` about `figures`, with its reason."""
    if not rule.questions:
        return Verdict.BY_HAND, "CERBERANK_PROMOTE_AFTER is 0"
    if figures.failures:
        return Verdict.KEEP, f"it failed on {figures.failures} questions"
    if figures.questions < rule.questions:
        return Verdict.WAIT, f"{figures.questions} of {rule.questions} questions"
    found = (
        (100.0 * figures.flips / figures.questions, "% of first candidates differ", rule.flip_percent, 1),
        (figures.overlap / figures.questions, "rank-biased overlap", rule.overlap, -1),
        (figures.latency_ratio, "times the latency", rule.latency_ratio, 1),
    )
    for value, what, limit, sign in found:
        if sign * value > sign * limit:
            return Verdict.KEEP, f"{value:.3g} {what}; the limit is {limit:g}"
    return Verdict.PROMOTE, f"{figures.questions} questions within every limit"
