"""Opens questions of which a command reads only the texts: FORMAT:PATH, or a file as `cerberank rank` reads it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cerberank_models.checkpoint.regular import file_digest
from cerberank_models.commands.question_lines import read_questions
from cerberank_models.convert.checkpoint import Questions
from cerberank_training.data import LabelledCandidate, Question, open_questions
from cerberank_training.data.sampling import calibration_texts
from cerberank_training.runs.run_data import Content, data_content
from cerberank_training.runs.summary import trained_on


def unlabelled(data: str) -> Sequence[Question]:
    """The questions in the order of the data. Labels mean nothing. Raises ValueError with file, line and field."""
    if _is_spec(data):
        return open_questions(data)
    return [
        Question(
            id=str(number),
            text=text,
            candidates=tuple(LabelledCandidate(candidate, 0) for candidate in candidates),
        )
        for number, (text, candidates) in enumerate(read_questions(Path(data)), start=1)
    ]


def int8_questions(data: str | None) -> Questions:
    """The questions to measure the ranges of an int8 form on, a sample of the data; none without data."""
    return () if data is None else calibration_texts(unlabelled(data))


def unlabelled_content(data: str, questions: Sequence[Question]) -> Content | str:
    """The identity of the data that `unlabelled` reads; `questions` are what it has read."""
    return data_content(data, questions) if _is_spec(data) else file_digest(Path(data))


def unlabelled_trained_on(folder: Path, data: str, questions: Sequence[Question]) -> str:
    """The sentence of `trained_on` for the data that `unlabelled` reads."""
    return trained_on(folder, data if _is_spec(data) else f"jsonl:{data}", questions)


def _is_spec(data: str) -> bool:
    return ":" in data and not Path(data).exists()
