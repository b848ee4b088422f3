"""What identifies data: its files' content, and how it is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.training.letters import questions

from cerberank_training.data import DataError
from cerberank_training.runs.content import data_content, data_files, short_digest


def test_articles_and_options_belong_to_the_data(tmp_path: Path) -> None:
    """Negatives come from the articles beside a file; the same files read in another way are other data."""
    for name in ("dev.jsonl.gz", "articles-dev.jsonl.gz", "other.jsonl.gz"):
        (tmp_path / name).write_text(name)
    content = data_content(f"squad-as2:{tmp_path / 'dev.jsonl.gz'}")
    assert set(content["sha256"]) == {"dev.jsonl.gz", "articles-dev.jsonl.gz"}
    (tmp_path / "articles-dev.jsonl.gz").write_text("changed")
    assert data_content(f"squad-as2:{tmp_path / 'dev.jsonl.gz'}") != content
    assert data_content(f"trec:{tmp_path}?part=train") != data_content(f"trec:{tmp_path}?part=dev")


def test_a_folder_counts_with_the_files_that_are_read(tmp_path: Path) -> None:
    """Another run in a TREC folder does not count, the one that is named does; hidden files never."""
    for name in ("queries.tsv", "qrels.txt", "documents/1", "bm25.run", "other.run", ".cache"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    read = {"queries.tsv", "qrels.txt", "documents/1", "bm25.run"}
    assert set(data_files(tmp_path, "trec", "run=bm25.run&part=dev")) == read
    assert set(data_files(tmp_path, "text", "")) == {*read, "other.run"}


def test_data_without_files_are_known_by_their_questions() -> None:
    """Such as those that a library loads by a name."""
    one, same, other = (data_content("hub:letters", questions(count)) for count in (5, 5, 4))
    assert one == same != other


def test_short_digests_are_of_one_file_or_of_all() -> None:
    """A single file's own digest can be compared with what sha256sum says."""
    assert short_digest({"a": "0123456789"}) == "01234567"
    assert short_digest({"a": "1" * 64, "b": "2" * 64}) == short_digest({"x": "2" * 64, "y": "1" * 64})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason of the system."""
    file = tmp_path / "data.jsonl"
    file.write_text("")

    def unreadable(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", unreadable)
    with pytest.raises(DataError, match=r"data\.jsonl: Permission denied"):
        data_content(f"jsonl:{file}")
