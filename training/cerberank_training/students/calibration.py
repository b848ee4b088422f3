"""The texts on which the ranges of an int8 form are measured: a sample of training data, not of a test set."""

from __future__ import annotations

import random
from collections.abc import Sequence

from cerberank_models.encoding import Candidate
from cerberank_training.data import Question


def calibration_texts(
    questions: Sequence[Question], *, size: int = 200, candidates: int = 16, seed: int = 0
) -> list[tuple[str, list[Candidate]]]:
    """A sample of `size` questions with at most `candidates` each. The same data and seed give the same sample."""
    rng = random.Random(seed)
    return [
        (
            question.text,
            [row.candidate for row in rng.sample(question.candidates, min(candidates, len(question.candidates)))],
        )
        for question in rng.sample(questions, min(size, len(questions)))
    ]
