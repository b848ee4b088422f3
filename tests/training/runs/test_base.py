"""The base of a run: what identifies it, and what is said of one that is not there. No network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.models.convert.test_source import COMMIT, in_hub_cache, offline
from tests.tiny import save_cross_encoder

from cerberank_models.commands.card import edit_card
from cerberank_models.convert.source import SourceError
from cerberank_training.runs import base
from cerberank_training.runs.base import find_base, refuse_missing


def test_a_folder_is_its_files_whatever_lies_beside_them(tmp_path: Path) -> None:
    """Weights, configuration, tokenizer; not the records and states of the run that wrote it."""
    folder = save_cross_encoder("bert", tmp_path / "base")
    found = find_base(str(folder))
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(found.content["sha256"])
    (folder / "record.json").write_text("{}")
    (folder / "run").mkdir()
    assert find_base(f"{folder}/").content == found.content
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    assert find_base(str(folder)).content != found.content


def test_a_checkpoint_is_its_network_whatever_its_card_says(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """An edited card makes no other base."""
    path = Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))
    before = find_base(str(path)).content
    edit_card(path, terms="CC0", version="2")
    assert find_base(str(path)).content == before


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("runs/teachr", "there is no such folder; did you mean runs/teacher?"),
        ("./teacher", "there is no such folder"),
        ("models/of/mine", "there is no folder models/of either"),
        ("/nowhere/model", "there is no folder /nowhere either"),
    ],
)
def test_a_wrong_path_is_not_asked_of_the_hub(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, with the folder's name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "teacher").mkdir(parents=True)
    monkeypatch.setattr(base, "find_source", lambda *_: pytest.fail("the hub was asked"))
    with pytest.raises(SourceError, match="no such folder") as error:
        find_base(name)
    assert str(error.value).startswith(name)
    assert said in str(error.value)


@pytest.mark.parametrize("name", ["bert-base-uncased", "sentence-transformers/all-MiniLM-L6-v2"])
def test_an_id_is_asked_of_the_hub(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With or without an owner, where no folder of nearly this name is there; also for a model that is not cached."""
    monkeypatch.chdir(tmp_path)

    def find(base: str) -> None:
        raise SourceError(f"the hub was asked for {base}")

    monkeypatch.setattr(base, "find_source", find)
    with pytest.raises(SourceError, match=f"the hub was asked for {name}"):
        find_base(name)


def test_a_folder_that_is_there_is_taken_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute, from here, below here, above, with a slash at its end: what looks like a path may well be one."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "models" / "of" / "mine"
    folder.mkdir(parents=True)
    (tmp_path / "models" / "off").mkdir()  # nearly the same name beside it
    for name in (str(folder), "./models", "models/of", "models/of/", "models/of/mine", f"../{tmp_path.name}/models"):
        refuse_missing(name)
    (tmp_path / "models" / "of").rename(tmp_path / "models" / "away")
    with pytest.raises(SourceError, match="no such folder; did you mean models/off"):
        refuse_missing("models/of")


def test_a_model_of_the_hub_is_the_files_of_its_snapshot(tmp_path: Path) -> None:
    """Loaded from the snapshot whose files were hashed; its name is the id, its commit is known."""
    snapshot = in_hub_cache("someone/tiny", tmp_path)
    save_cross_encoder("bert", snapshot)
    code = "from cerberank_training.runs.base import find_base\nprint(find_base('someone/tiny'))"
    said = subprocess.run(
        [sys.executable, "-c", code], env=offline(tmp_path), check=True, capture_output=True, text=True
    ).stdout
    assert said.startswith(f"Base(place='{snapshot}', name='someone/tiny', commit='{COMMIT}', content=")
    assert find_base(str(snapshot)).content["sha256"]["model.safetensors"] in said
