"""The accuracy of an answer, as its stages and scores order the candidates."""

from __future__ import annotations

from typing import Any

import pytest

from cerberank_benchmarks.clients.accuracy import metrics_of


def answer(*results: tuple[int, float | None]) -> dict[str, Any]:
    """One whose candidates have these stages and scores, listed in another order than they were sent."""
    listed = [{"index": index, "stage": stage, "score": score} for index, (stage, score) in enumerate(results)]
    return {"results": listed[::-1]}


def test_later_stages_come_first_whatever_the_scores() -> None:
    """Candidate 2 reached a later stage: it is ahead of a higher score; the relevant one is second."""
    assert metrics_of(answer((0, 0.9), (0, 0.1), (1, 0.2)), [1, 0, 0])["map"] == 0.5


def test_candidates_without_a_score_are_tied_in_the_last_place() -> None:
    """One of the two that no stage scored is relevant: its place is second or third, with equal chances."""
    assert metrics_of(answer((0, 0.3), (-1, None), (-1, None)), [0, 1, 0])["map"] == pytest.approx((1 / 2 + 1 / 3) / 2)


def test_what_the_lexical_layer_dropped_counts_by_its_scores() -> None:
    """Behind everything that a stage has scored."""
    lexical = answer((1, 0.1), (-1, None), (-1, None))
    lexical["results"][1]["lexical_score"], lexical["results"][0]["lexical_score"] = 0.0, 2.5
    assert metrics_of(lexical, [0, 0, 1])["map"] == 0.5
    assert metrics_of(lexical, [0, 1, 0])["map"] == pytest.approx(1 / 3)
