from __future__ import annotations

from typing import Any

import pytest

from cerberank_service.rollout.comparison import Comparison
from cerberank_service.rollout.shadow_figures import LEAST_CANDIDATES, PromotionRule, ShadowFigures, Verdict, judge

RULE = PromotionRule(questions=10, flip_percent=20.0, overlap=0.8, latency_ratio=1.5)


def figures(questions: int = 10, *, flips: int = 1, overlap: float = 0.9, seconds: float = 1.0) -> ShadowFigures:
    found = ShadowFigures("1", "2")
    for number in range(questions):
        compared = Comparison(flipped=number < flips, overlap=overlap, shift=0.1)
        found.add(compared, candidates=LEAST_CANDIDATES, stable_seconds=1.0, shadow_seconds=seconds)
    return found


@pytest.mark.parametrize(
    ("changes", "verdict", "why"),
    [
        ({}, Verdict.PROMOTE, "within every limit"),
        ({"questions": 9}, Verdict.WAIT, "9 of 10"),
        ({"flips": 3}, Verdict.KEEP, "first candidates"),
        ({"overlap": 0.7}, Verdict.KEEP, "overlap"),
        ({"seconds": 1.6}, Verdict.KEEP, "latency"),
    ],
)
def test_every_limit_counts(changes: dict[str, Any], verdict: Verdict, why: str) -> None:
    """A shadow is promoted after enough questions and within all of them."""
    said, because = judge(figures(**changes), RULE)
    assert said is verdict
    assert why in because


def test_small_questions_do_not_count_for_promotion() -> None:
    """They are described, but clients cannot have a shadow promoted with one-candidate questions."""
    found = figures(9)
    for candidates in (1, LEAST_CANDIDATES - 1):
        compared = Comparison(flipped=False, overlap=1.0, shift=0.0)
        found.add(compared, candidates=candidates, stable_seconds=1.0, shadow_seconds=1.0)
    assert judge(found, RULE)[0] is Verdict.WAIT
    assert (found.describe()["questions"], found.describe()["judged_questions"]) == (11, 9)


def test_one_failure_keeps_a_shadow_and_no_rule_means_by_hand() -> None:
    """However good the rest is."""
    failed = figures(100)
    failed.failures = 1
    assert judge(failed, RULE)[0] is Verdict.KEEP
    by_hand = PromotionRule(questions=0, flip_percent=100, overlap=0, latency_ratio=9)
    assert judge(figures(100), by_hand)[0] is Verdict.BY_HAND


def test_the_description_gives_means() -> None:
    """The description has means, and nulls before the first question."""
    told = figures(4, flips=1, overlap=0.5, seconds=2.0).describe()
    assert (told["stable"], told["shadow"], told["questions"], told["flips"]) == ("1", "2", 4, 1)
    assert (told["flip_percent"], told["rank_biased_overlap"], told["latency_ratio"]) == (25.0, 0.5, 2.0)
    assert told["score_shift"] == pytest.approx(0.1)
    assert ShadowFigures("1", "2").describe()["latency_ratio"] is None
