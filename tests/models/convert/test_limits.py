"""Hostile folders are refused before a library reads them: within seconds, and without memory for what they hold."""

from __future__ import annotations

import json
import os
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tiny import save_cross_encoder

from cerberank_models.commands.import_model import import_model
from cerberank_models.commands.import_options import ImportOptions
from cerberank_models.convert.limits import check_source
from cerberank_models.convert.source import find_source

SECONDS, MEGABYTES = 5.0, 64
"""Time and memory that a refusal may take; the promise is a second on a machine that does nothing else."""


def sized(name: str, size: int) -> Callable[[Path], None]:
    """A file of so many bytes, which take no place on the disk."""
    return lambda folder: os.truncate(folder / name, size)


def stated(**numbers: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | numbers))

    return change


def linked(name: str, place: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(place)

    return change


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_cross_encoder("bert", tmp_path_factory.mktemp("limits") / "source", num_labels=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (sized("tokenizer.json", 1 << 30), "tokenizer.json has 1073741824 bytes, at most 268435456"),
        (sized("tokenizer_config.json", 1 << 30), "tokenizer_config.json has"),
        (sized("config.json", 1 << 30), "has more than 1048576 bytes"),
        (stated(hidden_size=1 << 40), "hidden_size = 1099511627776, at most 65536"),
        (stated(num_hidden_layers=-1), "num_hidden_layers = -1"),
        (stated(num_hidden_layers="many"), "num_hidden_layers = 'many'"),
        (stated(num_hidden_layers=1000, hidden_size=65536), "at least 4"),
        (stated(vocab_size=9_000_000), "has at least 288"),
        (stated(max_position_embeddings=1 << 24), "has at least 536"),
        (linked("README.md", "/etc/hostname"), "is a link to a place outside"),
        (linked("onnx", "/etc"), "is a link to a place outside"),
        (linked("model.safetensors", "../elsewhere"), "is a link to a place outside"),
    ],
)
def test_a_hostile_folder_is_refused_at_once(
    change: Callable[[Path], None], message: str, source: Path, tmp_path: Path
) -> None:
    """By `import`, with what is wrong; nothing is written."""
    shutil.copytree(source, tmp_path / "source")
    change(tmp_path / "source")
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(ValueError, match=message):
        import_model(str(tmp_path / "source"), tmp_path / "out", ImportOptions(forms=()))
    assert time.monotonic() - started < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEGABYTES * 1024
    assert not (tmp_path / "out").exists()


def test_links_within_a_folder_and_to_the_hubs_blobs_are_read(source: Path, tmp_path: Path) -> None:
    """As huggingface_hub's cache has them, and as a user may make them."""
    snapshot = tmp_path / "models--x--y" / "snapshots" / "0"
    snapshot.mkdir(parents=True)
    blobs = tmp_path / "models--x--y" / "blobs"
    shutil.copytree(source, blobs)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(Path("../../blobs") / file.name)
    check_source(find_source(str(snapshot)))
    own = tmp_path / "own"
    shutil.copytree(source, own)
    (own / "copy.safetensors").symlink_to("model.safetensors")
    check_source(find_source(str(own)))
