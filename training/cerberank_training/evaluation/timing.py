"""The time that a ranker takes for 100 candidates, so that two evaluations tell which ranker is faster."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from time import perf_counter

from cerberank_models.ranker import Ranker
from cerberank_models.windows import Reading
from cerberank_training.data import Question

TIMED = 20
"""The number of questions that are timed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """The time of a ranker in this process. It depends on the machine and its load, and is in no file of figures."""

    milliseconds: float
    """Wall-clock milliseconds per 100 candidates, the median over questions, of `Ranker.rank`: tokenising, all stages,
    and drops by the default schedule."""
    questions: int
    candidates: float
    """The mean number of candidates of these questions."""
    form: str
    """The precision, the device and the number of threads."""

    def __str__(self) -> str:
        """The figure with its conditions."""
        return (
            f"Milliseconds per 100 candidates: {self.milliseconds:.0f} (median of {self.questions} questions of "
            f"{self.candidates:.0f} candidates on average, ranked one after the other by the default schedule; "
            f"{self.form})"
        )


def measure_speed(ranker: Ranker, questions: Sequence[Question], windows: Reading | None) -> Speed | None:
    """The time of random questions; None if none of them can be asked. The same questions give the same sample."""
    drawn = random.Random(0).sample(questions, min(TIMED, len(questions)))
    times, sizes = [], []
    for question in [*drawn[:1], *drawn]:  # the first one, whose time is not counted, warms up
        candidates = [row.candidate for row in question.candidates]
        began = perf_counter()
        try:
            ranker.rank(question.text, candidates, windows=windows)
        except ValueError:  # a blank question, or more than a request may hold
            continue
        times.append(1000 * (perf_counter() - began) * 100 / len(candidates))
        sizes.append(len(candidates))
    if len(times) < 2:
        return None
    return Speed(
        milliseconds=median(times[1:]), questions=len(times) - 1, candidates=fmean(sizes[1:]), form=ranker.form
    )
