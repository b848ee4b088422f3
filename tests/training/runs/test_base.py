"""The base of a run: its kind, its identity, and the error for a base that does not exist. No network."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.models.convert.test_source import COMMIT, in_hub_cache
from tests.tiny import hugging_face_config, save_cross_encoder
from transformers import AutoModel

from cerberank_models.commands.card import card
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.source import SourceError
from cerberank_training.runs import base
from cerberank_training.runs.base import open_base, open_hugging_face_base


@pytest.mark.parametrize(
    ("labels", "kind", "scores"),
    [
        (1, "a cross-encoder of one logit", True),
        (2, "a cross-encoder of two logits", True),
        (3, "a classifier into 3 labels", False),
    ],
)
def test_a_classifier_is_told_by_its_labels(labels: int, kind: str, scores: bool, tmp_path: Path) -> None:
    """One and two labels give a score."""
    opened = open_base(str(save_cross_encoder("bert", tmp_path, num_labels=labels)))
    assert (opened.kind, opened.classifies, opened.is_cross_encoder) == (kind, True, scores)


def test_an_encoder_is_none(tmp_path: Path) -> None:
    """Its configuration may state two labels, which transformers writes for every model."""
    AutoModel.from_config(hugging_face_config("bert")).save_pretrained(tmp_path)
    opened = open_base(str(tmp_path))
    assert (opened.kind, opened.is_cross_encoder) == ("an encoder", False)


def test_a_configuration_of_no_known_model_is_refused(tmp_path: Path) -> None:
    """One line, with the folder."""
    (tmp_path / "config.json").write_text('{"model_type": "none-such"}')
    with pytest.raises(UnsupportedModelError, match="none-such") as caught:
        open_base(str(tmp_path))
    assert str(caught.value).startswith(f"{tmp_path}: ")
    assert "\n" not in str(caught.value)


def test_a_checkpoint_is_not_trained_by_transformers(tiny_checkpoint: Path) -> None:
    """The message names both ways on."""
    with pytest.raises(UnsupportedModelError, match=r"and teachers .*distil --base .* export .* OUT --hugging-face"):
        open_hugging_face_base(str(tiny_checkpoint), reason="teachers are Hugging Face classifiers")


def test_a_folder_is_its_files_whatever_lies_beside_them(tmp_path: Path) -> None:
    """Weights, configuration, tokenizer; not the records and states of the run that wrote it."""
    folder = save_cross_encoder("bert", tmp_path / "base")
    before = open_base(str(folder)).content()
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(before["sha256"])
    (folder / "record.json").write_text("{}")
    (folder / "run").mkdir()
    assert open_base(f"{folder}/").content() == before
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    assert open_base(str(folder)).content() != before


def test_a_checkpoint_is_its_network_whatever_its_card_says(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """An edited card makes no other base."""
    path = Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))
    before = open_base(str(path)).content()
    assert set(before["sha256"]) == {"config.json", "model.safetensors", "tokenizer.json"}
    card(path, terms="CC0", version="2")
    assert open_base(str(path)).content() == before


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
        open_base(name)
    assert str(error.value).startswith(name)
    assert said in str(error.value)


@pytest.mark.parametrize("name", ["bert-base-uncased", "sentence-transformers/all-MiniLM-L6-v2"])
def test_an_id_is_asked_of_the_hub(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With or without an owner, where no folder of nearly this name is there; also for a model that is not cached."""
    monkeypatch.chdir(tmp_path)

    def find(place: str) -> None:
        raise SourceError(f"the hub was asked for {place}")

    monkeypatch.setattr(base, "find_source", find)
    with pytest.raises(SourceError, match=f"the hub was asked for {name}"):
        open_base(name)


def test_a_folder_that_is_there_is_taken_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute, from here, below here, above, with a slash at its end: what looks like a path may well be one."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "models" / "of" / "mine"
    folder.mkdir(parents=True)
    (tmp_path / "models" / "off").mkdir()  # nearly the same name beside it
    for name in (str(folder), "./models", "models/of", "models/of/", "models/of/mine", f"../{tmp_path.name}/models"):
        with pytest.raises(SourceError, match=r"has no config\.json"):
            open_base(name)
    (tmp_path / "models" / "of").rename(tmp_path / "models" / "away")
    with pytest.raises(SourceError, match="no such folder; did you mean models/off"):
        open_base("models/of")


def test_a_model_of_the_hub_is_the_files_of_its_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaded from the snapshot whose files are hashed; its name is the id, its commit is known."""
    snapshot = in_hub_cache("someone/tiny", tmp_path)
    save_cross_encoder("bert", snapshot)
    # Its variables are read when the library is imported.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    base = open_base("someone/tiny")
    assert (base.place, base.folder, base.name) == ("someone/tiny", snapshot, "someone/tiny")
    assert (base.commit, base.content()) == (COMMIT, open_base(str(snapshot)).content())
