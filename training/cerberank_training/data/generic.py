"""Your own data: one JSON line a question.

    {"question": "...", "candidates": [{"text": "...", "label": 1, "previous": "...", "next": "..."}, ...]}

`label` is 0 or 1; `previous`, `next`, a question `id` and a document's `title` are optional; other keys are errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from cerberank_models.config import Frozen
from cerberank_models.encoding import Candidate
from cerberank_training.data.question import DataError, LabelledCandidate, Question, read_lines


class _Row(Frozen):
    text: str
    label: Annotated[int, Field(ge=0, le=1)]
    previous: str = ""
    next: str = ""


class _Line(Frozen):
    id: str = ""
    question: str
    title: str = ""
    candidates: Annotated[tuple[_Row, ...], Field(min_length=1)]


def read_generic(path: Path) -> Iterator[Question]:
    """Questions one by one; a blank line is skipped."""
    for number, line in read_lines(path):
        if not line.strip():
            continue
        try:
            parsed = _Line.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "line"
            raise DataError(f"{path}:{number}: {place}: {first['msg']}") from error
        yield Question(
            id=parsed.id or str(number),
            text=parsed.question,
            title=parsed.title,
            candidates=tuple(
                LabelledCandidate(Candidate(text=row.text, previous=row.previous, next=row.next), row.label)
                for row in parsed.candidates
            ),
        )
