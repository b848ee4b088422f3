"""Questions as the scheduler sees them, and a driver that plays the engine for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from hypothesis import strategies as st

from cerberank_service.engine.scheduler import Scheduler, Step

STAGES = 3
BUDGET = 50
WORK = (1.0, 1.0, 1.0)


@dataclass
class Question:
    """A test's question: tokens by row, rows that survive each stage, and whether rows need not wait."""

    lengths: list[int]
    survivors: list[int] = field(default_factory=lambda: [10**6] * (STAGES - 1))
    flows: bool = False
    weight: float = 1.0
    deadline: float = inf

    @property
    def alive(self) -> list[int]:
        alive = [len(self.lengths)]
        for kept in self.survivors:
            alive.append(alive[-1] if self.flows else max(1, min(alive[-1], kept)))
        return alive

    @property
    def stage_tokens(self) -> list[float]:
        return [float(sum(self.lengths[:rows])) for rows in self.alive]


class Driver:
    """Plays the engine: feeds questions, lets survivors enter the next stage, counts the work done."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.scheduler = Scheduler(budget, WORK)
        self.questions: dict[int, Question] = {}
        self.left: dict[tuple[int, int], int] = {}
        self.steps: list[Step] = []
        self.work = 0
        self.ended: dict[int, int] = {}

    def add(self, key: int, question: Question) -> None:
        self.questions[key] = question
        lengths = np.asarray(question.lengths, dtype=np.int64)
        self.scheduler.add(key, question.stage_tokens, weight=question.weight, deadline=question.deadline)
        self.scheduler.queue(key, 0, np.arange(len(lengths)), lengths)
        self.left.update({(key, stage): rows for stage, rows in enumerate(question.alive)})

    def step(self) -> Step:
        step = self.scheduler.next_step()
        assert step is not None, "questions are present, but nothing runs"
        self.steps.append(step)
        self.work += step.tokens
        for key, rows in step.parts:
            self._follow(key, step.stage, rows)
        return step

    def _follow(self, key: int, stage: int, rows: Any) -> None:
        question = self.questions[key]
        self.left[key, stage] -= len(rows)
        if stage == STAGES - 1:
            if not self.left[key, stage]:
                self.scheduler.remove(key, answered=True)
                self.ended[key] = self.work
            return
        if not question.flows:
            rows = np.arange(0 if self.left[key, stage] else question.alive[stage + 1])
        self.scheduler.queue(key, stage + 1, rows, np.asarray(question.lengths, dtype=np.int64)[rows])


def run_through(questions: Mapping[int, Question], at: Mapping[int, int], budget: int = BUDGET) -> Driver:
    """Feed questions before the step `at[question]`, or earlier when nothing else is there, until all are done."""
    driver, coming = Driver(budget), dict(at)
    while coming or len(driver.scheduler):
        for key in [key for key, moment in coming.items() if moment <= len(driver.steps) or not len(driver.scheduler)]:
            driver.add(key, questions[key])
            del coming[key]
        driver.step()
    assert driver.scheduler.next_step() is None
    return driver


Traffic = tuple[dict[int, Question], dict[int, int]]


@st.composite
def traffic(
    draw: st.DrawFn,
    lengths: st.SearchStrategy[int] = st.integers(1, 2 * BUDGET),  # noqa: B008
    rows: int = 12,
    most: int = 6,
) -> Traffic:
    """Up to `most` questions, and the steps before which they come."""
    count = draw(st.integers(1, most))
    questions = {
        key: Question(
            lengths=draw(st.lists(lengths, min_size=1, max_size=rows)),
            survivors=draw(st.lists(st.integers(1, rows), min_size=STAGES - 1, max_size=STAGES - 1)),
            flows=draw(st.booleans()),
            weight=draw(st.sampled_from([1.0, 0.5, 0.1])),
            deadline=draw(st.sampled_from([inf, 1.0, 2.0])),
        )
        for key in range(count)
    }
    return questions, {key: draw(st.integers(0, 20)) for key in questions}
