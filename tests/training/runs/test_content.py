"""The identity of data: its files' content, and the way it is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.training.data.formats.test_beir import write_beir
from tests.training.data.trec.collections import write_collection
from tests.training.letters import questions

from cerberank_models.checkpoint.bound import difference, differences
from cerberank_training.data import DataError
from cerberank_training.runs.run_data import data_content, short_digest


def test_articles_and_options_belong_to_the_data(tmp_path: Path) -> None:
    """Negatives come from the articles beside a file; the same files read in another way are other data."""
    for name in ("dev.jsonl.gz", "articles-dev.jsonl.gz", "other.jsonl.gz"):
        (tmp_path / name).write_text(name)
    content = data_content(f"squad-as2:{tmp_path / 'dev.jsonl.gz'}")
    assert set(content["sha256"]) == {"dev.jsonl.gz", "articles-dev.jsonl.gz"}
    (tmp_path / "articles-dev.jsonl.gz").write_text("changed")
    assert data_content(f"squad-as2:{tmp_path / 'dev.jsonl.gz'}") != content
    folder = write_beir(tmp_path / "b")
    (folder / "run.txt").write_text("1 Q0 d3 1 9.0 t\n")
    assert data_content(f"beir:{folder}?run=run.txt&k=1") != data_content(f"beir:{folder}?run=run.txt&k=2")


def test_files_that_options_name_belong_to_the_data(tmp_path: Path) -> None:
    """A run does not go on with another collection of MS MARCO, or with other documents of a TREC collection."""
    (tmp_path / "coll.tsv").write_text("10\tten\n")
    (tmp_path / "q.tsv").write_text("7\tseven ?\n")
    (tmp_path / "ms").mkdir()
    (tmp_path / "ms" / "tr.tsv").write_text("7\t10\t10\n")
    collection = write_collection(tmp_path / "c")
    (collection / "documents").rename(collection / "docs")
    for spec, changed, name in (
        (f"msmarco:{tmp_path / 'ms' / 'tr.tsv'}?collection=../coll.tsv&queries=../q.tsv", "coll.tsv", "coll.tsv"),
        (f"msmarco:{tmp_path / 'ms' / 'tr.tsv'}?collection={tmp_path / 'coll.tsv'}&queries=../q.tsv", "q.tsv", "q.tsv"),
        (f"trec:{collection}?documents=docs", "c/docs/news/n01.gz", "docs/news/n01.gz"),
        (f"trec:{collection}?documents=docs&qrels=qrels.txt", "c/qrels.txt", "qrels.txt"),
    ):
        old = data_content(spec)
        (tmp_path / changed).write_bytes(b"other")
        ((field, one, two),) = differences({"data": old}, {"data": data_content(spec)})
        assert difference(field, one, two).startswith(f"other content of data (SHA-256: {name} "), spec


def test_a_folder_counts_with_the_files_that_are_read(tmp_path: Path) -> None:
    """The qrels of another split and a run that was saved there are no part of the data, the run that is named is."""
    folder = write_beir(tmp_path / "b")
    (folder / "run.txt").write_text("1 Q0 d3 1 9.0 t\n")
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n1\td1\t1\n")
    train, test = (data_content(f"beir:{folder}?split={split}&run=run.txt") for split in ("train", "test"))
    assert set(test["sha256"]) == {"corpus.jsonl", "queries.jsonl", "qrels/test.tsv", "run.txt"}
    assert short_digest(train["sha256"]) != short_digest(test["sha256"])
    for name in ("qrels/dev.tsv", "mine.trec", ".cache"):
        (folder / name).write_text("new")
    assert data_content(f"beir:{folder}?split=test&run=run.txt") == test
    trec = data_content(f"trec:{write_collection(tmp_path / 'c')}")
    documents = {"documents/lines.jsonl", "documents/more.tsv", "documents/news/n01.gz"}
    assert set(trec["sha256"]) == {*documents, "queries.topics", "qrels.txt"}


def test_data_without_files_are_known_by_their_questions() -> None:
    """Such as those that a library loads by a name."""
    one, same, other = (data_content("hub:letters", questions(count)) for count in (5, 5, 4))
    assert one == same != other


def test_short_digests_are_of_one_file_or_of_all() -> None:
    """A single file's own digest can be compared with what sha256sum says."""
    assert short_digest({"a": "0123456789"}) == "01234567"
    assert short_digest({"a": "1" * 64, "b": "2" * 64}) == short_digest({"x": "2" * 64, "y": "1" * 64})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason of the system; a pipe, which could be read only once, is not waited for."""
    file = tmp_path / "data.jsonl"
    file.write_text("")

    def unreadable(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", unreadable)
    with pytest.raises(DataError, match=r"data\.jsonl: Permission denied"):
        data_content(f"jsonl:{file}")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"pipe is not a regular file"):
        data_content(f"jsonl:{tmp_path / 'pipe'}")
