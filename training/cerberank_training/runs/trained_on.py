"""Tells whether data are those that a model was trained on, as far as the model's folder knows them.

A run rejects its own training data as dev set. The commands that evaluate, tune and calibrate later use this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cerberank_models.checkpoint.bound import SHA256
from cerberank_training.data import DataError, Question
from cerberank_training.runs.card import read_summary, spec_name
from cerberank_training.runs.content import data_content
from cerberank_training.runs.record import RunError, read_record


def training_data(folder: Path) -> list[dict[str, Any]]:
    """The data, by name and SHA-256, that the model in `folder` was trained on; those of its base come last.

    They are known for checkpoints of `distil`, also after `export`, `tune`, `accelerate` and `calibrate`, and for the
    folders that `teach` and `pairwise` write. The list is empty for other models.
    """
    if summary := read_summary(folder):
        return [part for part in (summary.get("data"), *(summary.get("earlier_data") or ())) if _has_digests(part)]
    resolved = folder.resolve()
    try:
        record = read_record(resolved.parent if resolved.name == "ranker" else resolved)
    except RunError:
        return []
    data: Any = None if record is None else record.bound.get("data")
    if record is None or not _has_digests(data):
        return []
    return [{"name": spec_name(str(record.free["names"]["train"])), SHA256: data[SHA256]}]


def trained_on(folder: Path, spec: str, questions: Iterable[Question]) -> str:
    """A sentence that says that the model in `folder` was trained on `FORMAT:PATH`; empty if that is not known.

    Files are compared by content, and `questions` if the data are not files.
    """
    if not (known := training_data(folder)):
        return ""
    content = data_content(spec, questions)
    digests, options = sorted(content[SHA256].values()), spec_name(spec).partition("?")[2]
    for data in known:
        if sorted(data[SHA256].values()) == digests and str(data.get("name")).partition("?")[2] == options:
            named = "" if data["name"] == spec_name(spec) else f" (as {data['name']})"
            return f"{folder.name} was trained on {spec}{named}: figures on it say nothing of new questions"
    return ""


def check_not_trained_on(folder: Path, spec: str, questions: Iterable[Question], *, option: str) -> None:
    """Raise DataError, which names the option, if the model in `folder` was trained on `FORMAT:PATH`."""
    if said := trained_on(folder, spec, questions):
        raise DataError(f"{option}: {said}; give questions that it was not trained on")


def _has_digests(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get(SHA256), Mapping)
