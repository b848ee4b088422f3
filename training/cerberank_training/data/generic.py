"""Reads your own data: one JSON line per question.

    {"question": "...", "candidates": [{"text": "...", "label": 1, "previous": "...", "next": "..."}, ...]}

`label` is 0 or 1; `previous`, `next` and a question `id` are optional; other keys are errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from cerberank_models.encoding import Candidate
from cerberank_models.transformer import Frozen
from cerberank_training.data.question import DataError, LabelledCandidate, Question, parse_line, read_lines


class _Row(Frozen):
    text: str
    label: Annotated[int, Field(ge=0, le=1)]
    previous: str = ""
    next: str = ""


class _Line(Frozen):
    id: str = ""
    question: str
    candidates: Annotated[tuple[_Row, ...], Field(min_length=1)]


def read_generic(path: Path) -> Iterator[Question]:
    """Yield questions one by one; blank lines are skipped, a repeated id is an error."""
    seen: set[str] = set()
    for number, line in read_lines(path):
        if not line.strip():
            continue
        parsed = parse_line(_Line, path, number, line)
        identifier = parsed.id or str(number)
        if identifier in seen:
            raise DataError(f"{path}:{number}: the question id {identifier!r} comes twice")
        seen.add(identifier)
        yield Question(
            id=identifier,
            text=parsed.question,
            candidates=tuple(
                LabelledCandidate(Candidate(text=row.text, previous=row.previous, next=row.next), row.label)
                for row in parsed.candidates
            ),
        )
