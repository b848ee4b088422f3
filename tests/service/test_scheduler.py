from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_service.scheduler import TURN_STEPS, Scheduler, Step

STAGES = 3
BUDGET = 50


def run_through(
    scheduler: Scheduler, questions: dict[int, list[int]], survivors: dict[int, list[int]], at: dict[int, int]
) -> list[Step]:
    """Feed questions (tokens by row) that come before step `at[question]` until nothing waits.

    Of each question, `survivors` says how many rows go on from each stage.
    """
    steps: list[Step] = []
    alive = {key: np.arange(len(lengths)) for key, lengths in questions.items()}
    coming = dict(at)
    while coming or len(scheduler):
        for key in [key for key, moment in coming.items() if moment <= len(steps) or not len(scheduler)]:
            scheduler.add(key, np.asarray(questions[key], dtype=np.int64))
            del coming[key]
        step = scheduler.next_step()
        assert step is not None, "questions are present, but nothing runs"
        steps.append(step)
        scheduler.done(step)
        for key, _ in step.parts:
            if not scheduler.finished_stage(key):
                continue
            if step.stage == STAGES - 1:
                scheduler.remove(key)
            else:
                alive[key] = alive[key][: max(1, min(len(alive[key]), survivors[key][step.stage]))]
                scheduler.advance(key, alive[key], np.asarray(questions[key], dtype=np.int64)[alive[key]])
    assert scheduler.next_step() is None
    return steps


@st.composite
def traffic(draw: st.DrawFn) -> tuple[dict[int, list[int]], dict[int, list[int]], dict[int, int]]:
    """Up to six questions, their survivors by stage, and the steps before which they come."""
    count = draw(st.integers(1, 6))
    rows = st.lists(st.integers(1, 2 * BUDGET), min_size=1, max_size=12)
    questions = {key: draw(rows) for key in range(count)}
    kept = st.lists(st.integers(1, 12), min_size=STAGES - 1, max_size=STAGES - 1)
    survivors = {key: draw(kept) for key in questions}
    return questions, survivors, {key: draw(st.integers(0, 20)) for key in questions}


@given(traffic())
def test_no_row_is_lost_or_run_twice(
    given_: tuple[dict[int, list[int]], dict[int, list[int]], dict[int, int]],
) -> None:
    """Every row runs through stage 0 once, every survivor once through each later stage, and no other row does."""
    questions, survivors, at = given_
    steps = run_through(Scheduler(BUDGET), questions, survivors, at)
    ran = Counter((key, step.stage, int(row)) for step in steps for key, rows in step.parts for row in rows)
    expected: Counter[tuple[int, int, int]] = Counter()
    for key, lengths in questions.items():
        alive = len(lengths)
        for stage in range(STAGES):
            expected.update((key, stage, row) for row in range(alive))
            if stage < STAGES - 1:
                alive = max(1, min(alive, survivors[key][stage]))
    assert ran == expected


@given(traffic())
def test_stages_of_a_question_come_in_order(
    given_: tuple[dict[int, list[int]], dict[int, list[int]], dict[int, int]],
) -> None:
    """Nothing of a question enters a stage before everything has left the one before."""
    for key, stages in _stages_by_question(run_through(Scheduler(BUDGET), *given_)).items():
        assert stages == sorted(stages), key


@given(traffic())
def test_a_step_keeps_to_the_budget_unless_a_single_row_exceeds_it(
    given_: tuple[dict[int, list[int]], dict[int, list[int]], dict[int, int]],
) -> None:
    """The tokens that a step states are those of its rows; a question has at most one part."""
    questions = given_[0]
    for step in run_through(Scheduler(BUDGET), *given_):
        tokens = [questions[key][row] for key, rows in step.parts for row in rows]
        assert sum(tokens) == step.tokens
        assert step.tokens <= BUDGET or len(tokens) == 1
        assert len({key for key, _ in step.parts}) == len(step.parts)


def test_within_a_turn_later_stages_go_first() -> None:
    """A question that has begun is finished before another begins: its states are held, and it is nearly done."""
    scheduler = Scheduler(BUDGET)
    for key in range(3):
        scheduler.add(key, np.full(4, 10))
    seen = []
    while (step := scheduler.next_step()) is not None:
        scheduler.done(step)
        seen.append((step.stage, [key for key, _ in step.parts]))
        for key, _ in step.parts:
            if scheduler.finished_stage(key):
                if step.stage == 1:
                    scheduler.remove(key)
                else:
                    scheduler.advance(key, np.arange(4), np.full(4, 10))
    assert seen == [(0, [0, 1]), (1, [0]), (0, [1, 2]), (1, [1]), (0, [2]), (1, [2])]


@pytest.mark.parametrize("large_stage", [0, 1, 2])
def test_a_small_question_gets_in_between_the_steps_of_a_large_one(large_stage: int) -> None:
    """It leads as soon as the large one's turn is over, in each of its stages."""
    scheduler = Scheduler(BUDGET)
    scheduler.add(0, np.full(1000, 10))
    for _ in range(large_stage):
        while not scheduler.finished_stage(0):
            _run_next(scheduler)
        scheduler.advance(0, np.arange(1000), np.full(1000, 10))
    for _ in range(7):
        _run_next(scheduler)
    scheduler.add(1, np.full(2, 10))
    waited = 0
    for stage in range(STAGES):
        while not scheduler.finished_stage(1):
            waited += 1
            _run_next(scheduler)
        if stage < STAGES - 1:
            scheduler.advance(1, np.arange(2), np.full(2, 10))
    assert waited <= TURN_STEPS + STAGES


def _run_next(scheduler: Scheduler) -> None:
    step = scheduler.next_step()
    assert step is not None
    scheduler.done(step)


def test_rows_run_longest_first_so_that_neighbours_pad_little() -> None:
    """A step holds rows of similar length."""
    scheduler = Scheduler(20)
    scheduler.add(0, np.asarray([1, 10, 2, 10, 9]))
    steps = [scheduler.next_step(), scheduler.next_step()]
    assert [step.parts[0][1].tolist() for step in steps if step] == [[1, 3], [4, 2, 0]]


def test_several_questions_share_a_step() -> None:
    """What one leaves of the budget goes to the next of the same stage."""
    scheduler = Scheduler(BUDGET)
    for key in range(3):
        scheduler.add(key, np.full(2, 10))
    step = scheduler.next_step()
    assert step is not None
    assert [(key, rows.tolist()) for key, rows in step.parts] == [(0, [0, 1]), (1, [0, 1]), (2, [0])]


def test_a_large_question_is_not_starved_by_a_stream_of_small_ones() -> None:
    """Newcomers that could fill every step do not hold it back for ever."""
    scheduler = Scheduler(BUDGET)
    scheduler.add(0, np.full(100, 10))  # twenty steps' worth
    left, steps = 100, 0
    while left:
        steps += 1
        assert steps < 400, f"{left} rows still wait"
        scheduler.add(steps, np.full(5, 10))  # a step's worth
        step = scheduler.next_step()
        assert step is not None
        scheduler.done(step)
        for key, rows in step.parts:
            if key == 0:
                left -= len(rows)
            elif scheduler.finished_stage(key):
                scheduler.remove(key)


def test_a_question_that_was_removed_is_forgotten() -> None:
    """Rows of a failed question do not run, not even those that were under way."""
    scheduler = Scheduler(BUDGET)
    scheduler.add(0, np.full(20, 10))
    step = scheduler.next_step()
    assert step is not None
    scheduler.remove(0)
    scheduler.done(step)
    scheduler.remove(0)
    assert scheduler.next_step() is None
    assert len(scheduler) == 0


def test_wrong_calls_are_refused() -> None:
    """A question can neither come twice nor skip rows."""
    scheduler = Scheduler(BUDGET)
    scheduler.add(0, np.full(20, 10))
    with pytest.raises(ValueError, match="already"):
        scheduler.add(0, np.full(1, 1))
    with pytest.raises(ValueError, match="rows left in stage 0"):
        scheduler.advance(0, np.arange(1), np.full(1, 10))


def _stages_by_question(steps: list[Step]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for step in steps:
        for key, _ in step.parts:
            found.setdefault(key, []).append(step.stage)
    return found
