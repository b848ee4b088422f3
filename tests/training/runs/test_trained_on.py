"""A model's folder tells what it was trained on, by the content of files and the options that name a part of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.training.letters import dev_jsonl, jsonl, questions

from cerberank_training.data import DataError
from cerberank_training.runs.run_data import data_content
from cerberank_training.runs.summary import check_not_trained_on, spec_name, trained_on, training_data


def summary(folder: Path, *specs: str) -> Path:
    """A checkpoint's folder with the summary of a run on the first of the data, from a base that knew the others."""
    folder.mkdir()
    first, *earlier = [{"name": spec_name(spec), "sha256": data_content(spec)["sha256"]} for spec in specs]
    (folder / "run.json").write_text(json.dumps({"data": first, "earlier_data": earlier}))
    return folder


def test_a_copy_of_the_training_data_is_known(tmp_path: Path) -> None:
    """Under any name, for every kind of folder, and of the base's data too; other data and parts are not."""
    train, dev = jsonl(tmp_path), dev_jsonl(tmp_path)
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes((tmp_path / "data.jsonl").read_bytes())
    student = summary(tmp_path / "student", train)
    (summary(tmp_path / "text", train) / "ranker").mkdir()
    folders = (
        student,
        summary(tmp_path / "adapted", dev, train),
        tmp_path / "text" / "ranker",
    )
    for folder in folders:
        said = trained_on(folder, f"jsonl:{copy}", [])
        assert said.startswith(f"{folder} was trained on jsonl:{copy} (as jsonl:data.jsonl): figures on it")
    assert not trained_on(student, dev, questions())
    assert not trained_on(student, f"rows:{copy}?text=other", questions())
    with pytest.raises(DataError, match=r"^--data: \S+/student was trained on .*; give questions that it was not"):
        check_not_trained_on(student, train, [], option="--data")


def test_a_folder_that_knows_nothing_is_trusted(tmp_path: Path) -> None:
    """An imported model, and files of other forms, which anyone may have written."""
    (tmp_path / "model").mkdir()
    assert training_data(tmp_path / "model") == []
    foreign = '{"data": {"sha256": {"a": "b"}}, "earlier_data": 3}', '{"data": {"name": "a", "sha256": {"b": 1}}}'
    for content in ("{", "[]", '{"data": 1, "earlier_data": [{"sha256": 2}]}', *foreign):
        (tmp_path / "model" / "run.json").write_text(content)
        assert training_data(tmp_path / "model") == []
