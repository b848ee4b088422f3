"""The lexical layer in front of a real network: what it keeps, what an answer says of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.calibrations import calibration, curves

from cerberank_models.answer import Answer
from cerberank_models.config import ListSchedule, RankerConfig
from cerberank_models.drop import drop_count
from cerberank_models.ranker import Ranker

QUESTION = "how tall is the tower"
SHARED, OTHER = "tower", "honey bees make"
words = st.sampled_from(["tower", "tall", "honey", "bees", "paris", "metres", "word"])
texts = st.lists(words, min_size=1, max_size=30).map(" ".join)


@pytest.fixture(scope="module")
def ranker(tiny_checkpoint: Path) -> Ranker:
    """Calibrated, with windows of some texts: a pair has 48 tokens."""
    opened = Ranker.load(tiny_checkpoint, precision="fp32", threads=1)
    fitted = replace(opened.checkpoint, calibration=calibration(stages=curves(3)))
    return Ranker(fitted, opened.backend)


def stating(ranker: Ranker, **schedules: Any) -> Ranker:
    """The ranker, whose `config.json` has these schedules."""
    config = RankerConfig.model_validate({**dict(ranker.checkpoint.config), **schedules})
    return Ranker(replace(ranker.checkpoint, config=config), ranker.backend)


def dropped(answer: Answer) -> list[int]:
    """The candidates that the layer dropped, in the order of the answer."""
    return [result.index for result in answer if result.lexical_score is not None]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(listed=st.lists(texts, min_size=1, max_size=12, unique=True), ratio=st.sampled_from([0.2, 0.5, 0.9]))
def test_the_rest_is_ranked_as_if_it_had_come_alone(ranker: Ranker, listed: list[str], ratio: float) -> None:
    """Dropped candidates stand last by their lexical scores, have no other, and leave the rest as it is."""
    answer = ranker.rank(QUESTION, listed, drop_ratio=0.5, lexical_ratio=ratio)
    out = dropped(answer)
    kept = sorted(set(range(len(listed))) - set(out))
    assert [result.index for result in answer][len(kept) :] == out
    assert len(out) <= drop_count(len(listed), ratio)
    lexical = [result.lexical_score for result in answer if result.lexical_score is not None]
    assert lexical == sorted(lexical, reverse=True)
    assert {(result.score, result.stage) for result in answer if result.index in out} <= {(None, -1)}
    alone = ranker.rank(QUESTION, [listed[place] for place in kept], drop_ratio=0.5)
    assert [(kept[result.index], result.score, result.stage, result.window) for result in alone] == [
        (result.index, result.score, result.stage, result.window) for result in answer[: len(kept)]
    ]
    assert (answer.answerable, answer.warnings, answer.tokens) == (alone.answerable, alone.warnings, alone.tokens)
    assert all(result.score <= alone.answerable for result in alone if result.score and alone.answerable)


@pytest.mark.parametrize("question", ["where is the river", "\u0e01\u0e02", "?"])
def test_a_question_without_a_word_in_common_drops_none(ranker: Ranker, question: str) -> None:
    """In other words than its candidates, in another script, or without any word."""
    candidates = [OTHER, "paris", "metres word"]
    answer = ranker.rank(question, candidates, lexical_ratio=0.9, drop_ratio=0)
    assert replace(answer, lexical_ratio=0.0) == ranker.rank(question, candidates, drop_ratio=0)


def test_windows_of_a_candidate_stay_together(ranker: Ranker) -> None:
    """A text is kept for a word in its last window, with all its windows; cut to its beginning it is not."""
    long = f"{'paris ' * 90}{SHARED}"
    candidates = [OTHER, long, "word", SHARED]
    answer = ranker.rank(QUESTION, candidates, lexical_ratio=0.5, windows="best")
    assert sorted(dropped(answer)) == [0, 2]
    (window,) = [result.window for result in answer if result.index == 1]
    assert window is not None
    assert sorted(dropped(ranker.rank(QUESTION, candidates, lexical_ratio=0.7, windows="off"))) == [0, 1, 2]


@pytest.mark.parametrize(
    ("count", "options", "lexical", "schedule"),
    [
        (9, {}, 0.5, (0.1, 0.1)),
        (10, {}, 0.75, (0.2, 0.0)),
        (30, {}, 0.0, (0.0, 0.0)),
        (30, {"lexical_ratio": 0.25}, 0.25, (0.0, 0.0)),
        (10, {"lexical_ratio": 0}, 0.0, (0.2, 0.0)),
        (10, {"drop_ratio": 0}, 0.0, (0.0, 0.0)),
        (10, {"drop_ratio": 0.3}, 0.0, (0.3, 0.3)),
        (10, {"drop_ratio": 0.3, "lexical_ratio": 0.25}, 0.25, (0.3, 0.3)),
    ],
)
def test_the_share_is_the_request_s_or_that_of_the_number_of_candidates(
    ranker: Ranker, count: int, options: dict[str, Any], lexical: float, schedule: Sequence[float]
) -> None:
    """Copies do not count. A request that states `drop_ratio` alone has no lexical layer."""
    longer = (
        ListSchedule(candidates=10, schedule=(0.2, 0.0), lexical_ratio=0.75),
        ListSchedule(candidates=30),
    )
    chosen = stating(ranker, drop_schedule=(0.1, 0.1), lexical_ratio=0.5, longer_lists=longer)
    listed = [f"{SHARED} " * (1 + place % 7) + str(place) for place in range(count)]
    answer = chosen.rank(QUESTION, [*listed, listed[0]], **options)
    assert (answer.lexical_ratio, answer.drop_schedule) == (lexical, schedule)
    assert len(dropped(answer)) <= 1 + lexical * count


@pytest.mark.parametrize(
    ("options", "kept"), [({}, 4), ({"top_k": 6}, 6), ({"drop_ratio": 0, "lexical_ratio": 0.9}, 1)]
)
def test_the_checkpoint_s_minimum_and_the_results_that_were_asked_for_stay(
    ranker: Ranker, options: dict[str, Any], kept: int
) -> None:
    """The minimum is that of the checkpoint's own schedule, as for exits."""
    listed = [OTHER, *(f"{SHARED} " + "paris " * place for place in range(9))]
    answer = stating(ranker, lexical_ratio=0.9, drop_minimum=4).rank(QUESTION, listed, **options)
    assert sum(result.lexical_score is None for result in answer) == kept
