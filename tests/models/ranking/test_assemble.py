from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.calibrations import calibration, curves
from tests.service.fakes import FakeBackend, checkpoint_for, ranker_config

from cerberank_models.calibration import StageCurves, probabilities
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.config import TunedSchedule
from cerberank_models.drop import UNSCORED
from cerberank_models.encoding import Candidate
from cerberank_models.rank_pairs import Ranking
from cerberank_models.ranking.assemble import answer_of, whole_ranking
from cerberank_models.ranking.call import RankAnswer, RankCall
from cerberank_models.ranking.prepare import Model, after_lexical, prepare

TEXTS = ("b", "a", "b", "c")
"""Three distinct pairs for four candidates."""


TUNED = (
    TunedSchedule(schedule=(0.0, 0.0), cost=1.0, metrics={"map": 80.0}),
    TunedSchedule(schedule=(0.5, 0.5), cost=0.5, metrics={"map": 79.75}),
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    config = ranker_config(schedule=(0.5, 0.5)).model_copy(update={"tuned_schedules": TUNED})
    return checkpoint_for(FakeBackend(config), tmp_path)


def answered(checkpoint: Checkpoint, *, top_k: int | None = None, **changes: Any) -> RankAnswer:
    call = RankCall(question="q", candidates=tuple(Candidate(text=text) for text in TEXTS), top_k=top_k)
    ranking = {
        "order": np.array([2, 0, 1]),
        "scores": np.array([0.4, 0.1, 0.9]),
        "stages": np.array([2, 0, 2]),
        "heads": np.array([[0.4, 0.4], [np.nan, np.nan], [0.8, 1.0]]),
    }
    prepared = prepare(call, Model(checkpoint=checkpoint, encoder=checkpoint.encoder()))
    return answer_of(prepared, Ranking(**ranking | changes))


def test_duplicates_stand_beside_their_pair_in_the_order_of_the_request(checkpoint: Checkpoint) -> None:
    """Both candidates with the text of pair 0 get its score and stage, the earlier one first."""
    answer = answered(checkpoint)
    assert answer.order.tolist() == [3, 0, 2, 1]
    assert answer.scores.tolist() == [0.4, 0.1, 0.4, 0.9]
    assert answer.stages.tolist() == [2, 0, 2, 2]
    assert answer.heads[3].tolist() == [0.8, 1.0]


def test_blank_candidates_stand_last_with_the_score_0(checkpoint: Checkpoint) -> None:
    """Whatever the network computed for them, before and after they are calibrated, and nobody's rivals."""
    fitted = replace(checkpoint, calibration=calibration(stages=curves(3)))
    ranking = Ranking(
        order=np.array([1, 2, 0]), scores=np.array([0.4, 0.9, 0.6]), stages=np.array([2, 2, 2]), heads=None
    )

    def ranked(checkpoint: Checkpoint, *texts: str) -> RankAnswer:
        call = RankCall(question="q", candidates=tuple(Candidate(text=text) for text in texts))
        prepared = prepare(call, Model(checkpoint=checkpoint, encoder=checkpoint.encoder()))
        return answer_of(prepared, ranking)

    for one in (checkpoint, fitted):
        answer = ranked(one, "a", " ", "c")
        assert answer.order.tolist() == [2, 0, 1]
        assert (answer.scores.tolist(), answer.reported[1]) == ([0.4, 0.0, 0.6], 0.0)
    found = answer.calibrated
    alone = probabilities(curves_of(fitted), np.array([0.4, 0.6]), np.array([2, 2]))
    assert (found.scores[[0, 2]].tolist(), found.answerable) == (alone.scores.tolist(), alone.answerable)
    none = ranked(fitted, " ", "", "\u200b").calibrated
    assert (none.scores.tolist(), none.answerable) == ([0.0, 0.0, 0.0], 0.0)


def curves_of(checkpoint: Checkpoint) -> tuple[StageCurves, ...]:
    return checkpoint.calibration.stages


def test_top_k_cuts_the_order_alone(checkpoint: Checkpoint) -> None:
    """Scores stay by candidate, so that a dialect may look up any."""
    answer = answered(checkpoint, top_k=2)
    assert answer.order.tolist() == [3, 0]
    assert len(answer.scores) == 4


def test_schedule_and_loss_are_those_of_the_call(checkpoint: Checkpoint) -> None:
    """The loss against the most accurate tuned schedule is told unless all candidates reached the last stage."""
    answer = answered(checkpoint)
    assert (answer.drop_schedule, answer.expected_loss, answer.warnings) == ((0.5, 0.5), {"map": 0.25}, ())
    assert answered(checkpoint, stages=np.array([2, 2, 2])).expected_loss == {}


def test_a_missed_deadline_and_unscored_candidates_are_warned_about(checkpoint: Checkpoint) -> None:
    """The count is of candidates, duplicates included, not of pairs."""
    stages = np.array([UNSCORED, 0, UNSCORED])
    answer = answered(checkpoint, complete=False, stages=stages, scores=np.array([np.nan, 0.1, np.nan]), heads=None)
    assert not answer.complete
    assert answer.warnings[0].startswith("the deadline passed")
    assert answer.warnings[1].startswith("3 candidates were not scored")


def test_after_a_deadline_what_the_lexical_layer_kept_stands_before_what_it_dropped(checkpoint: Checkpoint) -> None:
    """Neither has a score; only the former are said to have had no time."""
    texts = ("honey", "bees", "how tall", "tall")
    call = RankCall(
        question="how tall", candidates=tuple(Candidate(text=text) for text in texts), lexical_ratio=0.5, drop_ratio=0.0
    )
    kept = after_lexical(prepare(call, Model(checkpoint=checkpoint, encoder=checkpoint.encoder())))
    stages, scores = np.array([UNSCORED, 0]), np.array([np.nan, 0.5])
    ranked = Ranking(order=np.array([1, 0]), scores=scores, stages=stages, heads=None, complete=False)
    answer = answer_of(kept, whole_ranking(kept, ranked))
    assert answer.order.tolist() == [3, 2, 0, 1]
    assert answer.stages.tolist() == [UNSCORED, UNSCORED, UNSCORED, 0]
    assert answer.warnings[1].startswith("1 candidate was not scored")
    assert answer.falling_scores().tolist() == [0.5, 0.0, 0.0, 0.0]
