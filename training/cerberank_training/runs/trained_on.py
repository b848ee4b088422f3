"""Tells whether data are those that a model was trained on, as far as the model's folder knows them.

A run rejects its own training data as dev set. The commands that evaluate, tune and calibrate later use this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cerberank_models.checkpoint.atomic import write_json
from cerberank_models.checkpoint.bound import SHA256
from cerberank_models.checkpoint.model_card import RUN
from cerberank_training.data import DataError, Question
from cerberank_training.runs.card import data_of, read_summary, spec_name
from cerberank_training.runs.content import data_content
from cerberank_training.runs.launched import is_first_process
from cerberank_training.runs.record import RunRecord


def training_data(folder: Path) -> list[dict[str, Any]]:
    """The data, by name and SHA-256, that the model in `folder` was trained on; those of its base come last.

    They are known for checkpoints of `distil` and for the folders that `teach` and `pairwise` write, and stay known
    through `import`, `pretrain` and every command that writes a changed checkpoint. The list is empty for other models.
    """
    resolved = folder.resolve()
    run = resolved.parent if resolved.name == "ranker" else resolved
    if summary := read_summary(folder) or read_summary(run):
        data, earlier = summary.get("data"), summary.get("earlier_data")
        return [part for part in (data, *(earlier if isinstance(earlier, list) else ())) if _is_data(part)]
    return []


def write_training_data(out: Path, record: RunRecord, *, base: Path) -> None:
    """Write a summary with the data of a run and of its base into `out`, from the first process.

    It is for runs that write no checkpoint, and written when they begin, so that a killed run cannot lack it.
    """
    if is_first_process():
        data = {"data": data_of(record)} if "data" in record.bound else {}
        write_json(out / RUN, data | {"earlier_data": training_data(base)})


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
            return f"{folder} was trained on {spec}{named}: figures on it say nothing of new questions"
    return ""


def check_not_trained_on(folder: Path, spec: str, questions: Iterable[Question], *, option: str) -> None:
    """Raise DataError, which names the option, if the model in `folder` was trained on `FORMAT:PATH`."""
    if warning := trained_on(folder, spec, questions):
        raise DataError(f"{option}: {warning}; give questions that it was not trained on")


def _is_data(part: Any) -> bool:
    """True for a name with digests; the `run.json` of an imported model may be of any other form."""
    digests = part.get(SHA256) if isinstance(part, Mapping) else None
    return isinstance(digests, Mapping) and all(isinstance(each, str) for each in (part.get("name"), *digests.values()))
