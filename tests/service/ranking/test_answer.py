from __future__ import annotations

from typing import Any

import numpy as np
from tests.service.pairs import numbered_pairs

from cerberank_models.checkpoint.store.protocol import Reference
from cerberank_models.drop import UNSCORED, RatioSchedule
from cerberank_models.encoding import Candidate
from cerberank_service.call import RankAnswer, RankCall
from cerberank_service.engine.work import Ranked
from cerberank_service.ranking.answer import answer_of
from cerberank_service.ranking.prepare import Prepared

TEXTS = ("b", "a", "b", "c")
"""Three distinct pairs for four candidates."""


def answered(*, top_k: int | None = None, **found: Any) -> RankAnswer:
    unique = tuple(Candidate(text=text) for text in dict.fromkeys(TEXTS))
    call = RankCall(question="q", candidates=tuple(Candidate(text=text) for text in TEXTS), top_k=top_k)
    prepared = Prepared(
        pairs=(pairs := numbered_pairs(3)),
        truncated=pairs.truncated,
        unknown=pairs.unknown_candidates,
        pair_of=np.array([0, 1, 0, 2]),
        unique=unique,
        policy=RatioSchedule((0.5,)),
        loss={"map": 0.25},
        warnings=("one of before",),
    )
    ranked = {
        "order": np.array([2, 0, 1]),
        "scores": np.array([0.4, 0.1, 0.9]),
        "stages": np.array([1, 0, 1]),
        "heads": np.array([[0.4, 0.4], [np.nan, np.nan], [0.8, 1.0]]),
        "complete": True,
        "queue_seconds": 0.002,
        "compute_seconds": 0.003,
    }
    return answer_of(
        call,
        prepared,
        Ranked(**ranked | found),
        Reference("m", "1"),
        "id",
        encode_seconds=0.001,
        total_seconds=0.010,
    )


def test_duplicates_stand_beside_their_pair_in_the_order_of_the_request() -> None:
    """Both candidates with the text of pair 0 get its score and stage, the earlier one first."""
    answer = answered()
    assert answer.order.tolist() == [3, 0, 2, 1]
    assert answer.scores.tolist() == [0.4, 0.1, 0.4, 0.9]
    assert answer.stages.tolist() == [1, 0, 1, 1]
    assert answer.heads is not None
    assert answer.heads[3].tolist() == [0.8, 1.0]


def test_top_k_cuts_the_order_alone() -> None:
    """Scores stay by candidate, so that a dialect may look up any."""
    answer = answered(top_k=2)
    assert answer.order.tolist() == [3, 0]
    assert len(answer.scores) == 4


def test_times_are_milliseconds_and_the_rest_is_passed_on() -> None:
    """Schedule, expected loss and tokens come from what was prepared."""
    answer = answered()
    timing = answer.timing
    assert (timing.encode, timing.queue, timing.compute, timing.total) == (1.0, 2.0, 3.0, 10.0)
    assert (answer.drop_schedule, answer.expected_loss, answer.tokens) == ((0.5,), {"map": 0.25}, 9)
    assert answer.warnings == ("one of before",)


def test_a_missed_deadline_and_unscored_candidates_are_warned_about() -> None:
    """The count is of candidates, duplicates included, not of pairs."""
    stages = np.array([UNSCORED, 0, UNSCORED])
    answer = answered(complete=False, stages=stages, scores=np.array([np.nan, 0.1, np.nan]), heads=None)
    assert not answer.complete
    assert answer.warnings[1].startswith("the deadline passed")
    assert answer.warnings[2].startswith("3 candidates were not scored")
