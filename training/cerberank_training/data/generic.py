"""Reads and writes the format `jsonl` for your own data: a line of JSON for each question.

    {"question": "...", "candidates": [{"text": "...", "label": 1, "previous": "...", "next": "..."}, ...]}

`label` is 0 for a candidate that is not relevant, or else a grade of 1 or more. Optional keys are `previous`, `next`
and a number `score` of a candidate, and the `id` of a question and the `title` of its document. Other keys are ignored
and counted.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from cerberank_models.checkpoint.atomic import replacing
from cerberank_models.encoding import Candidate
from cerberank_models.json_lines import Identifier, OptionalText
from cerberank_models.transformer import Frozen
from cerberank_training.data.format import Format, NoOptions
from cerberank_training.data.notes import Notes, ignored
from cerberank_training.data.question import DataError, LabelledCandidate, Question, parse_line, read_lines


class _Row(Frozen):
    model_config = ConfigDict(extra="allow")

    text: str
    label: Annotated[int, Field(ge=0)]
    previous: OptionalText = ""
    next: OptionalText = ""
    score: Annotated[float, Field(allow_inf_nan=False)] | None = None


class _Line(Frozen):
    model_config = ConfigDict(extra="allow")

    id: Identifier = None
    question: str
    title: OptionalText = ""
    candidates: Annotated[tuple[_Row, ...], Field(min_length=1)]


def _read(path: Path, options: NoOptions, notes: Notes) -> Iterator[Question]:
    """Yield questions one by one. Repeated ids and a file without questions are errors."""
    seen: set[str] = set()
    for number, line in read_lines(path):
        parsed = parse_line(_Line, path, number, line)
        identifier = str(parsed.id) if parsed.id not in ("", None) else str(number)
        if identifier in seen:
            raise DataError(f"{path}:{number}: the question id {identifier!r} comes twice")
        seen.add(identifier)
        for part in (parsed, *parsed.candidates):
            notes.update(ignored(part.model_extra or ()))
        yield Question(
            id=identifier,
            text=parsed.question,
            title=parsed.title,
            candidates=tuple(
                LabelledCandidate(Candidate(text=row.text, previous=row.previous, next=row.next), row.label, row.score)
                for row in parsed.candidates
            ),
        )
    if not seen:
        raise DataError(f"{path} holds no question")


@contextmanager
def writing_lines(path: Path) -> Iterator[Callable[[Mapping[str, Any]], object]]:
    """A function that appends a line of JSON to a file, which is compressed if its name ends in .gz.

    The file replaces `path` when the block ends; after an exception nothing is left.
    """
    with ExitStack() as stack:
        plain = stack.enter_context(replacing(path))
        # Neither name nor time are in the header, so that equal lines give equal files.
        file = stack.enter_context(gzip.GzipFile("", "wb", 6, plain, 0)) if path.suffix == ".gz" else plain
        yield lambda line: file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


GENERIC = Format(name="jsonl", options=NoOptions, read=_read, streamed=True)
