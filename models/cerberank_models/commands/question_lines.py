"""Parses the input of `cerberank rank`: one line of JSON per question, which is a body of `POST /v1/rank`.

A line of training data in the generic form (docs/data.md) is such a line too; what only training reads is ignored. An
invalid line raises ValueError with a message of one line.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cerberank_models.encoding import Candidate
from cerberank_models.json_lines import load_json
from cerberank_models.request import RankRequest, with_shared

OF_TRAINING = frozenset({"title", "label", "score", "docid"})
"""Keys of training data, which are ignored. Other keys that a request does not know are errors, as in the service."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionLine:
    """A request, and the caller's id of its line."""

    id: str | int | None
    request: RankRequest


def read_line(line: bytes, shared: Mapping[str, Any] | None = None) -> QuestionLine:
    """Parse one line. A byte-order mark is skipped, and lone surrogates become U+FFFD, as in the encoder.

    Options that the line does not have are those of `shared`. Raises ValueError with the name of the invalid field.
    """
    try:
        content = load_json(line.removeprefix(BOM_UTF8).decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8: {error.reason} at byte {error.start}") from error
    if not isinstance(content, dict):
        raise ValueError("is not an object; a line holds one whole object")
    fields = {name: value for name, value in content.items() if name not in {*OF_TRAINING, "id"}}
    for name in ("candidates", "documents"):
        if isinstance(listed := fields.get(name), list):
            fields[name] = [_without_labels(each) for each in listed]
    own = content.get("id")
    if own is not None and (isinstance(own, bool) or not isinstance(own, str | int)):
        raise ValueError("id: must be a text or a whole number")
    return QuestionLine(id=own, request=RankRequest.from_fields(with_shared(fields, shared or {})))


def _without_labels(candidate: Any) -> Any:
    if not isinstance(candidate, dict):
        return candidate
    return {name: value for name, value in candidate.items() if name not in OF_TRAINING}


def read_questions(path: Path) -> list[tuple[str, list[Candidate]]]:
    """The questions of a file with their candidates; blank lines and questions without a candidate are skipped.

    Raises ValueError for an invalid line, or if there are no questions.
    """
    questions = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            request = read_line(line).request
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from error
        if request.candidates:
            questions.append((request.question, list(request.texts())))
    if not questions:
        raise ValueError(f"{path} holds no question with a candidate")
    return questions
