"""Reads the scores of another system from JSON lines, `{"id": "...", "scores": [0.3, ...]}` for each question.

`id` is the question's id (the line number for `jsonl` data without ids), and `scores` are in the order of the
candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from cerberank_models.backends.contract import Scores
from cerberank_models.transformer import Frozen
from cerberank_training.data import DataError, Question
from cerberank_training.data.question import parse_line, read_lines


class _Line(Frozen):
    id: str
    scores: tuple[Annotated[float, Field(allow_inf_nan=False)], ...]


def given_scores(path: Path, questions: Iterable[Question]) -> Iterator[tuple[Question, Scores]]:
    """Yield each question with its scores [n] from the file.

    Raises DataError with file and line for a malformed line, a score that is not a finite number, a repeated question,
    and a wrong number of scores; also raises DataError for a question without scores.
    """
    lines = _read(path)
    for question in questions:
        if question.id not in lines:
            raise DataError(f"{path} has no scores for question {question.id!r}")
        number, scores = lines[question.id]
        if len(scores) != len(question.candidates):
            raise DataError(
                f"{path}:{number}: {len(scores)} scores for the {len(question.candidates)} candidates of "
                f"question {question.id!r}"
            )
        yield question, scores


def _read(path: Path) -> dict[str, tuple[int, Scores]]:
    lines: dict[str, tuple[int, Scores]] = {}
    for number, line in read_lines(path):
        parsed = parse_line(_Line, path, number, line)
        if parsed.id in lines:
            raise DataError(f"{path}:{number}: question {parsed.id!r} comes twice")
        lines[parsed.id] = number, np.asarray(parsed.scores, dtype=np.float64)
    return lines
