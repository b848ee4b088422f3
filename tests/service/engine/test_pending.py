from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.service.fakes import BYTES_A_TOKEN, FakeBackend
from tests.service.pairs import numbered_pairs

from cerberank_models.backends.stage_contract import StageOutput
from cerberank_models.drop import UNSCORED, RatioSchedule
from cerberank_service.engine.pending import Pending
from cerberank_service.engine.work import Work


def pending(work: Work) -> Pending:
    return Pending(work=work, key=0, outcome=Future(), submitted=0.0)


def work(count: int, schedule: tuple[float, ...] = (0.5, 0.0), minimum: int = 1, deadline: float | None = 9.0) -> Work:
    policy = RatioSchedule(schedule, minimum)
    return Work(pairs=numbered_pairs(count), policy=policy, received=0.0, deadline=deadline)


def question_of(*args: Any, **options: Any) -> Pending:
    return pending(work(*args, **options))


def run(question: Pending, backend: FakeBackend, stage: int, rows: list[int]) -> list[int]:
    """Run rows through a stage; returns those that may go on."""
    asked = np.asarray(rows)
    found, missing = question.waiting_states.find(asked, backend)
    parts = [*found, *([(missing, backend.start(question.work.pairs.select(missing)))] if len(missing) else [])]
    joined = backend.concat([state for _, state in parts])
    rows_run = np.concatenate([rows for rows, _ in parts])
    question.record(stage, rows_run, backend.run(joined, stage), backend)
    return question.next_rows(stage, rows_run, backend).tolist()


def test_only_survivors_go_on_and_the_dropped_keep_their_scores() -> None:
    """Half of six go after the first exit, once all have passed it; they rank below every survivor."""
    backend, question = FakeBackend(), question_of(6)
    assert run(question, backend, 0, [5, 4, 3]) == []
    kept = run(question, backend, 0, [2, 1, 0])
    assert len(kept) == 3
    first = question.stage_scores[:, 0].copy()
    assert sorted(first[kept]) == sorted(first)[3:]
    assert question.waiting_states.size == BYTES_A_TOKEN * sum(row + 2 for row in kept)
    assert run(question, backend, 1, kept) == kept
    assert run(question, backend, 2, kept) == []
    assert question.done
    assert question.waiting_states.size == 0
    result = question.ranked(now=1.0, complete=True)
    dropped = [row for row in range(6) if row not in kept]
    assert question.dropped == [(0, 3)]
    assert result.scores[dropped].tolist() == first[dropped].tolist()
    assert result.stages.tolist() == [2 if row in kept else 0 for row in range(6)]
    assert set(result.order[:3].tolist()) == set(kept)
    assert np.isnan(result.heads[dropped]).all()
    assert not np.isnan(result.heads[kept]).any()


def test_rows_pass_an_exit_that_drops_nothing_unless_there_is_a_deadline() -> None:
    """With a deadline all rows finish a stage first, so that an order of all candidates is known early."""
    assert run(question_of(4, schedule=(0.0, 0.5), deadline=None), FakeBackend(), 0, [3, 2]) == [3, 2]
    assert run(question_of(4, schedule=(0.0, 0.5), deadline=9.0), FakeBackend(), 0, [3, 2]) == []


def test_rows_that_passed_an_exit_wait_at_the_next_one_that_drops() -> None:
    """All six are compared there, although they came in two lots."""
    backend, question = FakeBackend(), question_of(6, schedule=(0.0, 0.5), deadline=None)
    for lot in ([5, 4, 3], [2, 1, 0]):
        assert run(question, backend, 0, lot) == lot
        kept = run(question, backend, 1, lot)
    assert kept == np.sort(np.argsort(-question.stage_scores[:, 1])[:3]).tolist()


def test_a_part_of_the_first_stage_is_better_than_nothing() -> None:
    """The scored ones come first, the others say that no stage has seen them."""
    backend, question = FakeBackend(), question_of(4)
    assert not question.has_order
    run(question, backend, 0, [3, 1])
    assert question.has_order
    got = question.ranked(now=1.0, complete=False)
    assert got.stages.tolist() == [UNSCORED, 0, UNSCORED, 0]
    assert np.isnan(got.scores).tolist() == [True, False, True, False]
    assert sorted(got.order[:2].tolist()) == [1, 3]
    assert got.order[2:].tolist() == [0, 2]


@pytest.mark.parametrize(
    ("known", "rows", "has_order"),
    [(False, [0], False), (False, [0, 2], True), (True, [0], True), (True, [], False), (False, [2], False)],
)
def test_a_leading_row_is_no_order(known: bool, rows: list[int], has_order: bool) -> None:
    """It is the question's own: an order needs it, and a candidate's vector, of this work or known before."""
    texts = pending(replace(work(4, schedule=()), later_tokens=(1.0, 1.0), leads=True, ordered=known))
    output: StageOutput[Any] = StageOutput(
        state=None, scores=np.zeros(len(rows)), head_scores=None, vectors=[np.zeros(4, np.float16) for _ in rows]
    )
    texts.record(0, np.asarray(rows, np.int64), output, FakeBackend())
    assert texts.has_order is has_order


def test_a_part_of_a_later_stage_does_not_count() -> None:
    """The longest rows run first; that they were run is not a reason to rank them above the others."""
    backend, question = FakeBackend(), question_of(4, schedule=(0.0, 0.0))
    run(question, backend, 0, [3, 2, 1, 0])
    run(question, backend, 1, [3, 2])
    got = question.ranked(now=1.0, complete=False)
    assert got.stages.tolist() == [0, 0, 0, 0]
    assert got.scores.tolist() == question.stage_scores[:, 0].tolist()


@pytest.mark.parametrize(("schedule", "rows"), [((0.5, 0.5), (8, 4, 2)), ((0.0, 0.0), (8, 8, 8))])
def test_the_expected_tokens_are_those_of_survivors_of_average_length(
    schedule: tuple[float, ...], rows: tuple[int, ...]
) -> None:
    """Admission and fairness count them before anything has run."""
    question = work(8, schedule=schedule)
    mean = question.pairs.tokens / 8
    assert question.stage_tokens == tuple(count * mean for count in rows)
