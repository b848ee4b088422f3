"""The content of a step: every row once, stages in order, the budget, neighbours of like length, guests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.scheduling import BUDGET, Driver, Question, Traffic, run_through, traffic


@given(traffic())
def test_no_row_is_lost_or_run_twice(given_: Traffic) -> None:
    """Every row runs through stage 0 once, every survivor once through each later stage, and no other row does."""
    questions, at = given_
    steps = run_through(questions, at).steps
    ran = Counter((key, step.stage, int(row)) for step in steps for key, rows in step.parts for row in rows)
    expected = Counter(
        (key, stage, row)
        for key, question in questions.items()
        for stage, alive in enumerate(question.alive)
        for row in range(alive)
    )
    assert ran == expected


@given(traffic())
def test_the_stages_of_a_row_come_in_order(given_: Traffic) -> None:
    """Each row runs its stages in order, and where an exit drops, all rows of the question do."""
    questions, at = given_
    for key, question in questions.items():
        seen: dict[int, list[int]] = {}
        for step in run_through(questions, at).steps:
            for row in (row for other, rows in step.parts if other == key for row in rows):
                seen.setdefault(int(row) if question.flows else 0, []).append(step.stage)
        assert all(stages == sorted(stages) for stages in seen.values())


@given(traffic())
def test_a_step_keeps_to_the_budget_unless_a_single_row_exceeds_it(given_: Traffic) -> None:
    """The tokens that a step states are those of its rows; a question has at most one part."""
    questions, at = given_
    for step in run_through(questions, at).steps:
        tokens = [questions[key].lengths[row] for key, rows in step.parts for row in rows]
        assert sum(tokens) == step.tokens
        assert step.tokens <= BUDGET or len(tokens) == 1
        assert len({key for key, _ in step.parts}) == len(step.parts)


def test_rows_that_need_not_wait_run_down_at_once() -> None:
    """So that few hidden states wait, however large the question is."""
    driver = Driver()
    driver.add(0, Question([10] * 100, flows=True))
    assert [driver.step().stage for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_rows_run_longest_first_so_that_neighbours_pad_little() -> None:
    """A step holds rows of similar length."""
    driver = Driver(budget=20)
    driver.add(0, Question([1, 10, 2, 10, 9]))
    assert [driver.step().parts[0][1].tolist() for _ in range(2)] == [[1, 3], [4, 2, 0]]


def test_a_large_question_is_cut_evenly() -> None:
    """25,000 tokens in steps of 8,192 are four of about 6,250, not three full ones and a short one."""
    driver = Driver(budget=8192)
    driver.add(0, Question([50] * 500))
    assert [driver.step().tokens for _ in range(4)] == [6250, 6250, 6250, 6250]


@given(st.lists(st.integers(1, BUDGET), min_size=1, max_size=60))
def test_even_cuts_need_no_more_steps_than_full_ones(lengths: list[int]) -> None:
    """Compared with steps that are each filled as far as the rows, longest first, allow."""
    full, room = 1, BUDGET
    for length in sorted(lengths, reverse=True):
        full, room = (full, room - length) if length <= room else (full + 1, BUDGET - length)
    driver = Driver()
    driver.add(0, Question(lengths))
    steps = [driver.step() for _ in range(full)]
    assert {step.stage for step in steps} == {0}
    assert driver.left[0, 0] == 0


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        ((2, 2, 1), [1, 2, 2]),  # all of them fit
        ((2, 2, 2), [2, 2]),  # the third does not fit whole, and the step is full enough
        ((1, 9), [1]),  # a small leader is not held up by a large guest, beyond a third of a step
        ((9,), [5]),
    ],
)
def test_guests_share_the_step_of_a_leader(rows: Sequence[int], parts: list[int]) -> None:
    """Whole ones while there is room; of a larger one as much as a third of the step allows."""
    driver = Driver()
    for key, count in enumerate(rows):
        driver.add(key, Question([10] * count))
    assert [len(part) for _, part in driver.step().parts] == parts


def test_a_question_that_was_removed_is_forgotten() -> None:
    """Its rows do not run, it may be removed twice, and it claims no share any more."""
    driver = Driver()
    driver.add(0, Question([10] * 20))
    driver.step()
    driver.scheduler.remove(0, answered=False)
    driver.scheduler.remove(0, answered=False)
    assert driver.scheduler.next_step() is None
    assert len(driver.scheduler) == 0
