"""The SHA-256 of every file that a run reads. A run can be continued with moved data, but not with changed data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cerberank_models.checkpoint.bound import SHA256, SHORT
from cerberank_models.checkpoint.regular import file_digest
from cerberank_training.data import DataError, Question, data_files

Content = dict[str, Any]


def data_content(spec: str, questions: Iterable[Question] = ()) -> Content:
    """The identity of the data `FORMAT:PATH` or `FORMAT:PATH?key=value&...`.

    The identity is the format, the options, and the SHA-256 of all files that are read, including files that options
    name. If the data are not files, `questions` identify them. Raises DataError when a file cannot be read.
    """
    form, _, rest = spec.partition(":")
    place, _, options = rest.partition("?")
    try:
        digests = {name: file_digest(file) for name, file in data_files(spec).items()} or {
            "questions": _questions(questions)
        }
    except OSError as error:
        raise DataError(f"{error.filename or place}: {error.strerror or error}") from error
    return {"form": form, "options": options, SHA256: digests}


def folder_content(folder: Path) -> Content:
    """The identity of a folder of files, such as a text ranker's; empty if there is no such folder."""
    files = sorted(each for each in folder.glob("*") if each.is_file())
    return {SHA256: {each.name: file_digest(each) for each in files}}


def short_digest(digests: Mapping[str, str]) -> str:
    """The first characters of the only digest, or of a digest over several. Names of files have no influence."""
    values: Sequence[str] = sorted(digests.values())
    joined = values[0] if len(values) == 1 else hashlib.sha256("".join(values).encode()).hexdigest()
    return joined[:SHORT]


def _questions(questions: Iterable[Question]) -> str:
    digest = hashlib.sha256()
    for question in questions:
        digest.update(repr(question).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
