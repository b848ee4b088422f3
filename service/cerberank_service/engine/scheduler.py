"""Chooses which rows of which questions run next. Uses no torch, asyncio or clock; deadlines are only compared.

A step has one leading question, chosen by

1. the earliest fair end (weighted processor sharing, `fairness`), where nearly equal ends count as equal. A question
   with 20 candidates therefore does not wait for one with 5,000;
2. the latest stage, because such questions hold hidden states and are nearly done;
3. the earliest deadline;
4. the age of the question.

Under lasting overload this order alone would delay large questions for as long as smaller ones keep coming. Three
quarters of the work therefore go to the oldest question, among those with the greatest weight, as long as others would
overtake it: it leads a step whenever they have had more than the rest (`OVERTAKING`) and a quarter of its own work
(`SURPLUS`). So two promises hold together:

- no question ends later than after twice the time that it would take in the order of arrival, one step for each stage
  (a step holds rows of one stage and is filled up with guests), and one more; but those with a smaller
  weight than one that waits have only the second promise;
- no question takes longer than four times its time under equal sharing, up to as many steps.

Within a question, too, later stages run first, so that few hidden states wait.

The step runs the leading question's latest waiting stage. Rows of other questions that wait for the same stage fill the
rest of the token budget. If all waiting rows of another question fit, they are taken. Otherwise some of them are taken,
but only until the step holds the budget divided by the number of stages: so a small leading question takes less than
the time of one full step through all its stages.

A leading question that needs several steps is divided into nearly equal ones, whose remaining room other questions
fill. Full steps with a short last one would take as many steps, and leave the last one mostly empty.

There is no timer: a step is formed from the rows that wait when the engine asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from cerberank_service.engine.fairness import FairClock

Rows = NDArray[np.int64]
Lengths = NDArray[np.int64]

NEAR = 0.125
"""Fair ends count as equal within this share of a step's work. It also bounds the extra delay of small questions."""
OVERTAKING = 1 / 3
"""Work of the others for each unit of work of the oldest question, while they would overtake it. With a larger value
small questions wait less and large ones longer. Measured by a simulation (docs/load.md) of sixteen
clients whose questions have 4, 4, 50 or 200 candidates at random: the longest answers took 0.8, 4.3 and 7.9 seconds
with a value of 1/3, and 0.8, 2.9 and 9.4 with 1/2."""
SURPLUS = 0.25
"""The share of the oldest question's own work by which the others' work may exceed that before it leads. A question of
5,000 candidates is therefore not noticed by small ones that come now and then."""
LEAST_SURPLUS = 0.5
"""The same in full steps, for small oldest questions. With 0 a small question would wait for a step of the oldest one
after each of its stages."""


@dataclass(frozen=True, slots=True)
class Step:
    """A batch: some rows of some questions that run through one stage."""

    stage: int
    parts: tuple[tuple[int, Rows], ...]
    """Pairs of a question and its rows; each question occurs at most once."""
    tokens: int


@dataclass(slots=True)
class _Question:
    """A question's waiting rows by stage, longest first."""

    work: float
    fair_end: float
    weight: float
    deadline: float
    waiting: dict[int, tuple[Rows, Lengths]] = field(default_factory=dict)
    has_led_early: bool = False
    """True once the question has led a step before its turn. Such work does not advance the fair clock. Otherwise small
    questions that arrive later would wait because large ones ran before their turn. The question leaves the clock as
    soon as it is answered."""

    @property
    def latest_stage(self) -> int:
        return max(self.waiting)


class Scheduler:
    """Queues the rows of the questions in progress; the engine adds rows as they become ready for a stage."""

    def __init__(self, step_tokens: int, stage_work: Sequence[float]) -> None:
        """`step_tokens` bounds a step (a single row always fits); `stage_work` is the work per token of each stage."""
        self.step_tokens = step_tokens
        self._work = tuple(stage_work)
        self._questions: dict[int, _Question] = {}
        self._clock = FairClock()
        self._surplus = 0.0
        """Work of others than the oldest question, beyond `OVERTAKING` times its own; never negative."""

    def __len__(self) -> int:
        """Number of questions in progress."""
        return len(self._questions)

    def add(self, question: int, stage_tokens: Sequence[float], *, weight: float = 1.0, deadline: float = inf) -> None:
        """Add a question that is expected to run `stage_tokens` tokens by stage; it has no waiting rows yet."""
        if question in self._questions:
            raise ValueError(f"question {question} is already scheduled")
        work = sum(tokens * cost for tokens, cost in zip(stage_tokens, self._work, strict=True))
        self._questions[question] = _Question(work, self._clock.enter(question, work, weight), weight, deadline)

    def queue(self, question: int, stage: int, rows: Rows, lengths: Lengths) -> None:
        """Queue `rows`, with their lengths in tokens, for `stage`."""
        waiting = self._questions[question].waiting
        if stage in waiting:
            rows = np.concatenate([waiting[stage][0], rows])
            lengths = np.concatenate([waiting[stage][1], lengths])
        if len(rows):
            waiting[stage] = _longest_first(rows, lengths)

    def remove(self, question: int, *, answered: bool) -> None:
        """Remove a question that was `answered` in full or abandoned."""
        removed = self._questions.pop(question, None)
        if removed is not None and (removed.has_led_early or not answered):
            self._clock.leave(question)
        if not self._questions:
            self._clock.clear()
            self._surplus = 0.0

    def next_step(self) -> Step | None:
        """Remove the next step's rows from the queue; None when no row waits."""
        full_work = self.step_tokens * max(self._work)
        # Sorting is stable and dicts keep their order, so that among equal questions the older one comes first.
        ready = [(key, question) for key, question in self._questions.items() if question.waiting]
        if not ready:
            return None

        # The fair order, in which the oldest question moves to the front if the others have overtaken it by too much.
        oldest_key, oldest = max(ready, key=lambda item: item[1].weight)
        ready.sort(key=lambda item: _fair_order(item[1], nearly_equal=NEAR * full_work))
        allowed = max(LEAST_SURPLUS * full_work, SURPLUS * oldest.work)
        leads_early = ready[0][1] is not oldest and self._surplus > allowed
        if leads_early:
            oldest.has_led_early = True
            ready.remove((oldest_key, oldest))
            ready.insert(0, (oldest_key, oldest))

        # The first question leads, and its latest stage is the step's; rows of the others fill the rest.
        stage = ready[0][1].latest_stage
        parts: list[tuple[int, Rows]] = []
        step_tokens = oldest_tokens = 0
        for key, question in ready:
            if stage in question.waiting:
                rows, tokens = self._take(question, stage, step_tokens)
                if len(rows):
                    parts.append((key, rows))
                    step_tokens += tokens
                    if key == oldest_key:
                        oldest_tokens = tokens

        # The accounts: the clock advances by the work in the fair order, and the surplus is what the others have had
        # beyond the share of the oldest. Guests of small leaders add to it, so it has a bound: the next oldest question
        # should not lead many steps for them.
        others_tokens = step_tokens - oldest_tokens
        self._clock.serve((others_tokens if leads_early else step_tokens) * self._work[stage])
        surplus = self._surplus + (others_tokens - OVERTAKING * oldest_tokens) * self._work[stage]
        self._surplus = min(max(0.0, surplus), allowed + full_work)
        return Step(stage, tuple(parts), step_tokens)

    def _take(self, question: _Question, stage: int, taken: int) -> tuple[Rows, int]:
        """Take the rows that fit into a step with `taken` tokens so far; the leading question gets at least one row."""
        rows, lengths = question.waiting[stage]
        total = np.cumsum(lengths)
        room = self.step_tokens - taken
        # A guest whose rows do not all fit may fill the step up to a stage's share of the budget.
        if taken and total[-1] > room:
            room = self.step_tokens // len(self._work) - taken
        count = int(np.searchsorted(total, room, side="right"))
        # The leader's rows are divided into nearly equal steps.
        if not taken:
            equal_part = total[-1] / ceil(total[-1] / room)
            count = max(1, min(count, int(np.searchsorted(total, equal_part)) + 1))
        if count == len(rows):
            del question.waiting[stage]
        else:
            question.waiting[stage] = rows[count:], lengths[count:]
        return rows[:count], int(total[count - 1]) if count else 0


def _fair_order(question: _Question, *, nearly_equal: float) -> tuple[float, int, float]:
    """The key of the order in which questions lead. Fair ends that differ by less than `nearly_equal` may be equal."""
    return question.fair_end // nearly_equal, -question.latest_stage, question.deadline


def _longest_first(rows: Rows, lengths: Lengths) -> tuple[Rows, Lengths]:
    """Sort rows by length, so that neighbours in the queue need little padding."""
    order = np.lexsort((rows, -lengths))
    return rows[order].astype(np.int64), lengths[order].astype(np.int64)
