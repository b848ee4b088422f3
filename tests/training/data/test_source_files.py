"""The files that data are read from, and their names."""

from __future__ import annotations

from pathlib import Path

import datasets
import pytest
from tests.training.data.formats.test_beir import write_beir

from cerberank_training.data import DataError, data_files


def test_names_hold_no_folder_of_the_machine(tmp_path: Path) -> None:
    """Files inside are named by their path, others by their name, with a number where two have the same."""
    for name in ("ms/tr.tsv", "ms/in/x.tsv", "a/x.tsv", "b/x.tsv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    spec = f"msmarco:{tmp_path / 'ms' / 'tr.tsv'}"
    assert set(data_files(f"{spec}?collection=in/x.tsv&queries=../a/x.tsv")) == {"tr.tsv", "in/x.tsv", "x.tsv"}
    assert set(data_files(f"{spec}?collection={tmp_path}/b/x.tsv&queries=../a/x.tsv")) == {
        *("tr.tsv", "x.tsv", "x.tsv 2")
    }
    assert data_files("datasets:a/name-on-the-hub") == {}


def test_each_format_says_which_files_of_a_folder_it_reads(tmp_path: Path) -> None:
    """Parquet all tables, a data set those of the split without what is cached beside them."""
    for name in ("notes.md", "1.parquet", "more/2.parquet"):
        (tmp_path / "f" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "f" / name).write_text("")
    assert set(data_files(f"parquet:{tmp_path / 'f'}?text=passage")) == {"1.parquet", "more/2.parquet"}
    rows = datasets.Dataset.from_list([{"question": "q", "text": "t", "label": 1}])
    datasets.DatasetDict({"train": rows, "dev": rows}).save_to_disk(str(tmp_path / "d"))
    (tmp_path / "d" / "dev" / "cache-1.arrow").write_text("")
    assert set(data_files(f"datasets:{tmp_path / 'd'}?split=dev")) == {
        f"dev/{name}" for name in ("data-00000-of-00001.arrow", "dataset_info.json", "state.json")
    }


def test_what_a_folder_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the reader; the current folder is one."""
    monkeypatch.chdir(write_beir(tmp_path / "b"))
    assert set(data_files("beir:.")) == {"corpus.jsonl", "queries.jsonl", "qrels/test.tsv"}
    with pytest.raises(DataError, match=r"it has no dev\.tsv"):
        data_files("beir:.?split=dev")
    with pytest.raises(DataError, match=r"needs one entry documents\*"):
        data_files("trec:.")
