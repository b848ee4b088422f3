"""Which rows of which questions run next. Pure: no torch, no asyncio, no clock; deadlines are compared, never read.

The question leads whose end would come first if all were served at once, by weight (`fairness`): one with 20
candidates need not wait for one with 5,000, and none ends later than under equal sharing, up to a step. Among
questions whose fair ends are near, later stages go first, because they hold hidden states and are nearly done, then
the earliest deadline, then the older one. Under lasting overload equal sharing itself would hardly serve a large
question, so an eighth of the work is the oldest one's. Within a question, too, later stages go first: rows that need
not wait for others run down to the last stage, and few states wait.

The leader's stage is the step's stage. What its rows leave of the budget goes to guests that wait for the same one:
whole, or in part up to a share that keeps a small leader's way through all its stages below one step. There is no
timer: a step is cut when the engine asks for it, with what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from cerberank_service.engine.fairness import FairClock

Rows = NDArray[np.int64]
Lengths = NDArray[np.int64]

NEAR = 0.125
"""Fair ends are near within this part of a step's work. Small questions could be held up by that much more."""


OLDEST_AFTER = 7
"""Steps' worth of work after which the oldest question leads one."""


@dataclass(frozen=True, slots=True)
class Step:
    """One stage over some rows of some questions."""

    stage: int
    parts: tuple[tuple[int, Rows], ...]
    """(question, its rows); every question at most once."""
    tokens: int


@dataclass(slots=True)
class _Question:
    """A question's waiting rows by stage, longest first."""

    fair_end: float
    deadline: float
    waiting: dict[int, tuple[Rows, Lengths]] = field(default_factory=dict)

    @property
    def deepest(self) -> int:
        return max(self.waiting)


class Scheduler:
    """Holds the questions in progress; the engine tells it which rows may enter which stage."""

    def __init__(self, step_tokens: int, stage_work: Sequence[float]) -> None:
        """`step_tokens` bounds a step, but a single row always fits; `stage_work` is by stage, per token."""
        self.step_tokens = step_tokens
        self._work = tuple(stage_work)
        self._questions: dict[int, _Question] = {}
        self._clock = FairClock()
        self._without_oldest = 0.0
        """Work done since the oldest question led a step."""

    def __len__(self) -> int:
        """Questions in progress."""
        return len(self._questions)

    def add(self, question: int, stage_tokens: Sequence[float], *, weight: float = 1.0, deadline: float = inf) -> None:
        """A new question, which is expected to run `stage_tokens` tokens by stage; nothing of it waits yet."""
        if question in self._questions:
            raise ValueError(f"question {question} is already scheduled")
        work = sum(tokens * cost for tokens, cost in zip(stage_tokens, self._work, strict=True))
        self._questions[question] = _Question(self._clock.enter(question, work, weight), deadline)

    def queue(self, question: int, stage: int, rows: Rows, lengths: Lengths) -> None:
        """Let `rows`, with their lengths, wait for `stage` beside those that wait already."""
        waiting = self._questions[question].waiting
        if stage in waiting:
            rows = np.concatenate([waiting[stage][0], rows])
            lengths = np.concatenate([waiting[stage][1], lengths])
        if len(rows):
            waiting[stage] = _longest_first(rows, lengths)

    def remove(self, question: int, *, answered: bool) -> None:
        """Forget a question, `answered` in full or given up."""
        self._questions.pop(question, None)
        if not answered:
            self._clock.leave(question)
        if not self._questions:
            self._clock.clear()

    def next_step(self) -> Step | None:
        """Take the next step's rows out of the queue; None when nothing waits."""
        near = NEAR * self.step_tokens * max(self._work)
        # sorted is stable and dicts keep order: of equal questions the older one goes first.
        ready = [item for item in self._questions.items() if item[1].waiting]
        if not ready:
            return None
        oldest = ready[0]
        ready.sort(key=lambda item: (item[1].fair_end // near, -item[1].deepest, item[1].deadline))
        if self._without_oldest >= OLDEST_AFTER * self.step_tokens * max(self._work):
            ready.remove(oldest)
            ready.insert(0, oldest)
        stage = ready[0][1].deepest
        parts: list[tuple[int, Rows]] = []
        spent = 0
        for key, question in ready:
            if stage in question.waiting:
                rows, tokens = self._take(question, stage, spent)
                if len(rows):
                    parts.append((key, rows))
                    spent += tokens
        self._clock.serve(spent * self._work[stage])
        led_by_oldest = parts[0][0] == oldest[0]
        self._without_oldest = 0.0 if led_by_oldest else self._without_oldest + spent * self._work[stage]
        return Step(stage, tuple(parts), spent)

    def _take(self, question: _Question, stage: int, spent: int) -> tuple[Rows, int]:
        """Rows that fit a step in which `spent` tokens are taken; the first question gets at least one."""
        rows, lengths = question.waiting[stage]
        total = np.cumsum(lengths)
        room = self.step_tokens - spent
        if spent and total[-1] > room:
            room = self.step_tokens // len(self._work) - spent
        count = int(np.searchsorted(total, room, side="right"))
        if not spent:
            count = max(count, 1)
        if count == len(rows):
            del question.waiting[stage]
        else:
            question.waiting[stage] = rows[count:], lengths[count:]
        return rows[:count], int(total[count - 1]) if count else 0


def _longest_first(rows: Rows, lengths: Lengths) -> tuple[Rows, Lengths]:
    """Neighbours in the queue are then of similar length and pad little."""
    place = np.lexsort((rows, -lengths))
    return rows[place].astype(np.int64), lengths[place].astype(np.int64)
