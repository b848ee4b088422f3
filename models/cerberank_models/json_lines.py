"""Parses a line of JSON as a pydantic model, with errors of one line in our own words."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ValidationError

from cerberank_models.tokens import replace_surrogates

SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""An escaped half of a surrogate pair, alone or not."""
ModelT = TypeVar("ModelT", bound=BaseModel)


def _identifier(value: Any) -> Any:
    if value is None or (isinstance(value, str | int) and not isinstance(value, bool)):
        return value
    raise ValueError("must be a text or a whole number")


Identifier = Annotated[str | int | None, BeforeValidator(_identifier)]
"""A text or a whole number, or null for none."""
OptionalText = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""A text that may be null, which pandas and BEIR's tools write for a missing one; null is the empty text."""


def parse_json(model: type[ModelT], line: str) -> ModelT:
    """The object that a line holds. Lone surrogates become U+FFFD, as in the encoder.

    Raises ValueError with the name of the invalid field.
    """
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        if problem["type"] != "json_invalid":
            raise ValueError(_words(problem)) from error
    try:
        return model.model_validate_json(json.dumps(load_json(line), ensure_ascii=False))
    except ValidationError as error:
        raise ValueError(_words(error.errors(include_url=False, include_input=False)[0])) from error


def load_json(line: str) -> Any:
    """The value that a line holds. Lone surrogates, which pydantic calls invalid JSON, become U+FFFD.

    Raises ValueError with the column.
    """
    try:
        content = json.loads(line)
        if SURROGATE.search(line):
            content = json.loads(replace_surrogates(json.dumps(content, ensure_ascii=False)))
        return content
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} at column {error.colno}; a line holds one whole object") from error


def validation_message(error: ValueError) -> str:
    """The first problem of pydantic's ValidationError, with its place; other errors keep their message."""
    if not isinstance(error, ValidationError):
        return str(error)
    return _words(error.errors(include_url=False, include_input=False)[0])


def _words(problem: Any) -> str:
    """The place, such as `candidates.3.text: `, without union tags (in angle brackets), and what is wrong there."""
    parts = [str(part) for part in problem["loc"] if not str(part).startswith("<")]
    if not parts and problem["type"] == "model_type":
        return "is not an object; a line holds one whole object"
    wrong = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "too_short":
        wrong = f"must have at least {problem['ctx']['min_length']} item"
    return f"{'.'.join(parts)}: {wrong}" if parts else wrong
