"""The texts on which the ranges of an int8 form are measured: a sample of training data, never of a test set."""

from __future__ import annotations

import random
from collections.abc import Iterable

from cerberank_models.encoding import Candidate
from cerberank_training.data import Question


def calibration_texts(
    questions: Iterable[Question], *, size: int = 200, candidates: int = 16, seed: int = 0
) -> list[tuple[str, list[Candidate]]]:
    """A sample of `size` questions with at most `candidates` each, the same for the same data and seed."""
    rng = random.Random(seed)
    everything = list(questions)
    return [
        (
            question.text,
            [row.candidate for row in rng.sample(question.candidates, min(candidates, len(question.candidates)))],
        )
        for question in rng.sample(everything, min(size, len(everything)))
    ]
