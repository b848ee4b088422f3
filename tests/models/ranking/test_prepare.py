from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service.fakes import FakeBackend, checkpoint_for, ranker_config

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.config import DropSchedule
from cerberank_models.encoding import Candidate
from cerberank_models.rank_pairs import Ranking
from cerberank_models.ranking.assemble import answer_of
from cerberank_models.ranking.call import CallError, RankCall
from cerberank_models.ranking.prepare import Model, Prepared, prepare
from cerberank_models.windows import Windowing


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return checkpoint_for(FakeBackend(ranker_config(schedule=(0.3, 0.5))), tmp_path)


def candidates(*texts: str) -> tuple[Candidate, ...]:
    return tuple(Candidate(text=text) for text in texts)


def prepared(checkpoint: Checkpoint, **call: Any) -> Prepared:
    fields = {"question": "how?", "candidates": candidates("a", "b", "c")} | call
    return prepare(RankCall(**fields), Model(checkpoint=checkpoint, encoder=checkpoint.encoder()))


def warnings_of(checkpoint: Checkpoint, **call: Any) -> tuple[str, ...]:
    """The warnings of an answer in which all candidates reach the last stage."""
    question = prepared(checkpoint, **call)
    count = len(question.candidates)
    stages = np.full(count, len(question.policy.ratios))
    ranking = Ranking(order=np.arange(count), scores=np.ones(count), stages=stages, heads=None)
    return answer_of(question, ranking).warnings


def test_identical_candidates_are_encoded_once(checkpoint: Checkpoint) -> None:
    """`places` leads every candidate to its pair, in the order of first appearance."""
    result = prepared(checkpoint, candidates=candidates("b", "a", "b", "b", "c"))
    assert len(result.pairs) == 3
    assert result.places.tolist() == [0, 1, 0, 0, 2]


def test_another_context_makes_another_candidate(checkpoint: Checkpoint) -> None:
    """Candidates are merged only if text and context are identical."""
    result = prepared(checkpoint, candidates=(Candidate(text="a"), Candidate(text="a", previous="b")))
    assert len(result.pairs) == 2


def test_an_operator_s_schedule_takes_the_place_of_the_checkpoint_s(checkpoint: Checkpoint) -> None:
    """The operator's schedule replaces the checkpoint's, but not the caller's drop ratio."""
    model = Model(checkpoint=checkpoint, encoder=checkpoint.encoder())
    for ratio, used in ((None, (0.1, 0.1)), (0.2, (0.2, 0.2))):
        call = RankCall(question="how?", candidates=candidates("a", "b"), drop_ratio=ratio)
        assert prepare(call, model, schedule=DropSchedule(schedule=(0.1, 0.1))).policy.ratios == used


def test_ratios_that_do_not_fit_the_exits_are_refused(checkpoint: Checkpoint) -> None:
    """The message says how many there are."""
    with pytest.raises(CallError, match="2 exits"):
        prepared(checkpoint, drop_ratio=(0.1, 0.2, 0.3))


def test_truncation_is_told_or_refused(checkpoint: Checkpoint) -> None:
    """Cut texts are scored with a warning, unless the caller would rather have an error; the question has its own."""
    long: dict[str, Any] = {"candidates": candidates("a " * 300, "b", "a " * 300), "windowing": None}
    result = prepared(checkpoint, **long)
    assert result.truncated[result.places].tolist() == [True, False, True]
    assert warnings_of(checkpoint, **long) == ("the ends of 2 candidates were not read: a pair holds 64 tokens",)
    prepared(checkpoint, refuse_truncation=True)
    asking = {"question": "a " * 300}
    assert warnings_of(checkpoint, **asking) == (
        "only the question's end was read: at most 24 tokens fit; shorten it, and send it without the chat before it",
    )
    assert not prepared(checkpoint, **asking).truncated.any()
    for call in (long, asking):
        with pytest.raises(CallError, match="send shorter texts") as caught:
            prepared(checkpoint, **call, refuse_truncation=True)
        assert caught.value.tokens > 0


def test_a_model_that_cuts_reads_windows_only_for_a_call_that_names_their_rule(checkpoint: Checkpoint) -> None:
    """Other calls get a warning that knows of no windows."""
    encoding = checkpoint.config.encoding.model_copy(update={"windows": "off"})
    cutting = replace(checkpoint, config=checkpoint.config.model_copy(update={"encoding": encoding}))
    long: dict[str, Any] = {"candidates": candidates("a " * 300)}
    assert warnings_of(cutting, **long) == ("the end of 1 candidate was not read: a pair holds 64 tokens",)
    assert warnings_of(cutting, **long, windowing=Windowing(combine="mean")) == ()


def test_texts_of_unknown_tokens_are_told(checkpoint: Checkpoint) -> None:
    """The question and the candidates, each in its own sentence."""
    thai = "\u0e01\u0e02 \u0e04\u0e07"
    assert warnings_of(checkpoint, candidates=candidates(thai, "b")) == (
        "the model's vocabulary lacks most tokens of 1 candidate: their scores mean little",
    )
    assert warnings_of(checkpoint, question=thai) == (
        "the model's vocabulary lacks most of the question's tokens: the order means little",
    )


def test_what_has_no_effect_is_told(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Empty candidates, context that is not read, another language, drop ratios without exits."""
    odd = (Candidate(text=" "), Candidate(text="a", next="b"))
    assert warnings_of(checkpoint, candidates=odd) == (
        "1 candidate is empty",
        "this model does not read the previous and next sentence",
    )
    german = checkpoint_for(FakeBackend(ranker_config().model_copy(update={"languages": ("de",)})), tmp_path)
    assert warnings_of(german, question="how tall is the tower?") == (
        "the question seems to be English, this model is for German: the order means little",
    )
    plain = checkpoint_for(FakeBackend(ranker_config(exits=0, heads=1)), tmp_path)
    assert warnings_of(plain, drop_ratio=0.5) == ("this model has no exits: drop_ratio has no effect",)
