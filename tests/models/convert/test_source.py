"""A user's name becomes a model that exists, or an error that says what to do instead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tiny import save_cross_encoder

from cerberank_models.checkpoint.store.checkpoint_store import is_name
from cerberank_models.convert.source import Source, SourceError, find_source

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def in_hub_cache(model: str, home: Path) -> Path:
    """A folder to write a model's files into, which huggingface_hub takes for its snapshot in the cache of `home`."""
    place = home / "hub" / f"models--{model.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(COMMIT)
    return place / "snapshots" / COMMIT


def offline(home: Path) -> dict[str, str]:
    """The environment of a program whose hub is the cache of `home` alone."""
    return {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}


def test_a_folder_is_known_by_its_content(tmp_path: Path) -> None:
    """Its name, and a digest of names and bytes: a hidden file does not count, a renamed one does."""
    source = find_source(str(save_cross_encoder("bert", tmp_path / "mine")))
    assert (source.name, source.commit, source.has_tokenizer) == ("mine", None, True)
    before = source.content()
    (tmp_path / "mine" / ".lock").touch()
    assert source.content() == before
    (tmp_path / "mine" / "extra.json").write_text("{}")
    extra = source.content()
    (tmp_path / "mine" / "extra.json").rename(tmp_path / "mine" / "other.json")
    assert len({before, extra, source.content()}) == 3


@pytest.mark.parametrize("place", ["my model", "modèle", "модель", ".hidden", "x(1)", "a" * 120, "-x", "模型 2"])
def test_any_folder_gives_a_name(place: str, tmp_path: Path) -> None:
    """The name has letters, digits, '.', '_' and '-'; folders that lost different letters keep different names."""
    names = []
    for each in (place, f"{place}é", f"{place}模"):
        (tmp_path / each).mkdir()
        (tmp_path / each / "config.json").write_text("{}")
        names.append(find_source(str(tmp_path / each)).name)
    assert all(map(is_name, names))
    assert len(set(names)) == 3


def test_files_behind_links_to_folders_count(tmp_path: Path) -> None:
    """Another content gives another digest; a link to a folder above does not end in a circle."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "model.onnx").write_text("1")
    (tmp_path / "mine" / "onnx").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "mine" / "circle").symlink_to(tmp_path / "mine")
    source = find_source(str(tmp_path / "mine"))
    before = source.content()
    (tmp_path / "elsewhere" / "model.onnx").write_text("2")
    assert source.content() != before


def test_a_checkpoint_is_named_as_what_it_is(tiny_checkpoint: Path) -> None:
    """With the setting that serves it."""
    with pytest.raises(
        SourceError, match=f"is a Cerberank checkpoint already: set CERBERANK_CHECKPOINT={tiny_checkpoint}"
    ):
        find_source(str(tiny_checkpoint))


def test_a_store_is_named_as_what_it_is(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """With the setting that follows it."""
    (tmp_path / "random-tiny").mkdir()
    (tmp_path / "random-tiny" / "1").symlink_to(tiny_checkpoint)
    with pytest.raises(SourceError, match=f"a store of Cerberank checkpoints: set CERBERANK_STORE={tmp_path}"):
        find_source(str(tmp_path))


@pytest.mark.parametrize("named", ["./nowhere", "/no/where", "a/b/c", "", "-x"])
def test_what_is_no_folder_and_no_id_is_refused(named: str) -> None:
    """Without asking a hub."""
    with pytest.raises(SourceError, match="there is no such folder, and it is not an id"):
        find_source(named)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    """No configuration, one that is not JSON or nested too deep, and a revision, which folders do not have."""
    with pytest.raises(SourceError, match=r"has no config\.json"):
        find_source(str(tmp_path))
    for content in ("{", "[" * 100_000):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(SourceError, match="is not JSON"):
            find_source(str(tmp_path))
    with pytest.raises(SourceError, match="has no revision 'main'"):
        find_source(str(tmp_path), "main")


def test_a_model_of_the_hub_is_found_in_the_cache(tmp_path: Path) -> None:
    """Offline, by its id, with its commit, which becomes the version (tests/e2e/test_serve_model.py); another model is
    refused with a line and no traceback.
    """
    save_cross_encoder("bert", in_hub_cache("someone/tiny", tmp_path), num_labels=1)
    code = (
        "from cerberank_models.convert.source import find_source\n"
        "try:\n    find_source('someone/else', 'v2')\nexcept ValueError as error:\n    print(error)\n"
        "print(find_source('someone/tiny'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=offline(tmp_path), check=True, capture_output=True, text=True
    )
    other, cached = done.stdout.splitlines()
    assert other.startswith("someone/else at revision v2: there is no such folder, and the hub did not give it: ")
    snapshot = tmp_path / "hub" / "models--someone--tiny" / "snapshots" / COMMIT
    assert cached == str(Source(place="someone/tiny", folder=snapshot, commit=COMMIT))


@pytest.mark.parametrize(
    ("card", "languages"),
    [
        ("---\nlanguage: en\nlicense: mit\n---\n# A ranker\n", ("en",)),
        ("---\nlanguage:\n- en\n- de\n- en\n---\n", ("en", "de")),
        ("---\nlanguage: multilingual\n---\n", ()),
        ("---\nlanguage: [en, multilingual]\n---\n", ()),
        ("---\nlanguage: no\n---\n", ()),  # YAML reads False
        ("---\nlanguage: {en: 1}\n---\n", ()),
        ("---\nlicense: mit\n---\n", ()),
        ("---\nlanguage: [en\n---\n", ()),
        ("---\n- en\n---\n", ()),
        ("# A ranker\n", ()),
        (None, ()),
    ],
)
def test_a_card_states_languages_or_none(card: str | None, languages: tuple[str, ...], tmp_path: Path) -> None:
    """One code, or several; anything else among them means that the card states none."""
    (tmp_path / "config.json").write_text("{}")
    if card is not None:
        (tmp_path / "README.md").write_text(card)
    assert find_source(str(tmp_path)).languages == languages
