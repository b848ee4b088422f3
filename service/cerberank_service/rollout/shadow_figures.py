"""What a shadow version did on mirrored questions, and whether the stated rule would let it become stable."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from cerberank_service.rollout.comparison import Comparison


class Verdict(Enum):
    """What the rule says."""

    BY_HAND = "by_hand"
    """There is no rule."""
    WAIT = "wait"
    """Too few questions yet."""
    KEEP = "keep"
    """The shadow stays a shadow."""
    PROMOTE = "promote"


@dataclass(frozen=True, kw_only=True, slots=True)
class PromotionRule:
    """A shadow becomes stable after so many questions without a failure and within all limits."""

    questions: int
    """0: by hand."""
    flip_percent: float = 10.0
    """Most questions where another candidate may come first."""
    overlap: float = 0.9
    """Least mean rank-biased overlap."""
    latency_ratio: float = 1.25
    """Most compute time, by the stable version's."""


@dataclass(slots=True)
class ShadowFigures:
    """Sums over the questions that `shadow` was asked as well as `stable`."""

    stable: str
    shadow: str
    questions: int = 0
    flips: int = 0
    overlap: float = 0.0
    shift: float = 0.0
    stable_seconds: float = 0.0
    shadow_seconds: float = 0.0
    failures: int = 0
    """Questions that the shadow alone could not answer."""
    skipped: int = 0
    """Questions that were not mirrored because the service was busy."""

    def add(self, comparison: Comparison, *, stable_seconds: float, shadow_seconds: float) -> None:
        """One question."""
        self.questions += 1
        self.flips += comparison.flipped
        self.overlap += comparison.overlap
        self.shift += comparison.shift
        self.stable_seconds += stable_seconds
        self.shadow_seconds += shadow_seconds

    @property
    def latency_ratio(self) -> float:
        """The shadow's compute time by the stable version's."""
        return self.shadow_seconds / self.stable_seconds if self.stable_seconds > 0 else 1.0

    def describe(self) -> dict[str, Any]:
        """Counts and means; null before the first question."""
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
    """What `rule` says of `figures`, and why."""
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
