"""Which rows of which questions run next. Pure: no torch, no asyncio, no clock.

Turns are fair: the question that was served the fewest tokens leads the step, so that one with 20 candidates
need not wait for one with 5,000. Service is counted in turns of `TURN_STEPS` steps. Within a turn later stages go
first, because their questions hold hidden states and are nearly done, and then older questions: equal
questions are finished one after another rather than all at the end. A newcomer starts at what a question present
all the time would have been served by now: a stream of small ones cannot hold a large one back for ever either.

The leader's stage is the step's stage; what its rows leave of the budget goes to others that wait for the same one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]

TURN_STEPS = 2
"""More would finish equal questions sooner on average, fewer let a small question in sooner."""


@dataclass(frozen=True, slots=True)
class Step:
    """One stage over some rows of some questions."""

    stage: int
    parts: tuple[tuple[int, Rows], ...]
    """(question, its rows); every question at most once."""
    tokens: int


@dataclass(slots=True)
class _Waiting:
    """A question's rows that its present stage has not run yet, longest first."""

    stage: int
    rows: Rows
    lengths: NDArray[np.int64]
    served: float
    running: int = 0


class Scheduler:
    """Holds the questions in progress; the engine tells it when a stage's survivors are known."""

    def __init__(self, step_tokens: int) -> None:
        """`step_tokens` bounds a step, but a single row always fits."""
        self._budget = step_tokens
        self._questions: dict[int, _Waiting] = {}
        self._fair_share = 0.0

    def __len__(self) -> int:
        """Questions in progress."""
        return len(self._questions)

    @property
    def queued_tokens(self) -> int:
        """Tokens that wait for their present stage."""
        return sum(int(waiting.lengths.sum()) for waiting in self._questions.values())

    def add(self, question: int, lengths: NDArray[np.int64]) -> None:
        """Queue all rows of a new question for stage 0; `lengths[n]` are its tokens by row."""
        if question in self._questions:
            raise ValueError(f"question {question} is already scheduled")
        rows = _longest_first(np.arange(len(lengths)), lengths)
        self._questions[question] = _Waiting(0, *rows, served=self._fair_share)

    def advance(self, question: int, rows: Rows, lengths: NDArray[np.int64]) -> None:
        """The stage is done: queue its survivors `rows`, with their lengths, for the next one."""
        waiting = self._questions[question]
        if len(waiting.rows) or waiting.running:
            raise ValueError(f"question {question} has rows left in stage {waiting.stage}")
        waiting.stage += 1
        waiting.rows, waiting.lengths = _longest_first(rows, lengths)

    def remove(self, question: int) -> None:
        """Forget a question, done or not."""
        self._questions.pop(question, None)

    def next_step(self) -> Step | None:
        """Take the next step's rows out of the queue; None when nothing waits."""
        ready = [(key, waiting) for key, waiting in self._questions.items() if len(waiting.rows)]
        if not ready:
            return None
        # sorted is stable and dicts keep order: of equal questions the older one goes first.
        ready.sort(key=lambda item: (item[1].served // (TURN_STEPS * self._budget), -item[1].stage))
        stage = ready[0][1].stage
        parts: list[tuple[int, Rows]] = []
        spent = 0
        for key, waiting in ready:
            if waiting.stage != stage:
                continue
            rows, tokens = self._take(waiting, self._budget - spent, first=not parts)
            if len(rows):
                parts.append((key, rows))
                spent += tokens
        self._fair_share += spent / len(self._questions)
        return Step(stage, tuple(parts), spent)

    def done(self, step: Step) -> None:
        """The rows of `step` were run."""
        for question, rows in step.parts:
            if question in self._questions:
                self._questions[question].running -= len(rows)

    def finished_stage(self, question: int) -> bool:
        """Whether every row of the question's present stage was run."""
        waiting = self._questions[question]
        return not len(waiting.rows) and not waiting.running

    @staticmethod
    def _take(waiting: _Waiting, room: int, *, first: bool) -> tuple[Rows, int]:
        total = np.cumsum(waiting.lengths)
        count = int(np.searchsorted(total, room, side="right"))
        if first:
            count = max(count, 1)
        rows, tokens = waiting.rows[:count], int(total[count - 1]) if count else 0
        waiting.rows, waiting.lengths = waiting.rows[count:], waiting.lengths[count:]
        waiting.served += tokens
        waiting.running += count
        return rows, tokens


def _longest_first(rows: Rows, lengths: NDArray[np.int64]) -> tuple[Rows, NDArray[np.int64]]:
    """Neighbours in the queue are then of similar length and pad little."""
    place = np.argsort(-lengths, kind="stable")
    return rows[place].astype(np.int64), lengths[place].astype(np.int64)
