from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cerberank_models.checkpoint import CheckpointError, read_checkpoint, write_checkpoint

Damage = Callable[[Path], object]


@pytest.fixture
def copy(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "copy"))


def edit_manifest(path: Path, **changes: object) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, **changes}))


def rename_in_manifest(path: Path, old: str, new: str) -> None:
    files = json.loads((path / "manifest.json").read_text())["files"]
    files[new] = files.pop(old)
    edit_manifest(path, files=files)


def test_a_written_checkpoint_is_read_back(tiny_checkpoint: Path) -> None:
    """Configuration, precisions, golden questions and graphs are all there."""
    checkpoint = read_checkpoint(tiny_checkpoint)
    assert checkpoint.config.name == "random-tiny"
    assert checkpoint.precisions == ("fp32", "int8")
    assert len(checkpoint.stage_graphs("int8")) == 3
    assert checkpoint.weights is not None
    assert set(checkpoint.golden[0].scores) == {"fp32", "int8"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: (path / "manifest.json").unlink(), "not finished"),
        (lambda path: (path / "manifest.json").write_text("{"), r"manifest\.json"),
        (lambda path: (path / "model.safetensors").unlink(), r"lacks model\.safetensors"),
        (lambda path: (path / "extra.bin").write_bytes(b"x"), r"extra\.bin"),
        (lambda path: (path / "config.json").write_text("{}"), r"config\.json does not have the SHA-256"),
        (lambda path: (path / "tokenizer.json").write_bytes(b"{}"), r"tokenizer\.json does not have"),
        (lambda path: edit_manifest(path, format=2), "format"),
        (lambda path: edit_manifest(path, surprise=1), "surprise"),
        (lambda path: rename_in_manifest(path, "README.md", "../README.md"), "not a path within"),
        (lambda path: rename_in_manifest(path, "README.md", "/etc/passwd"), "not a path within"),
        (lambda path: rename_in_manifest(path, "README.md", "CARD.md"), r"lacks README\.md"),
        (lambda path: (path / "link").symlink_to("/etc/passwd"), "symbolic links"),
    ],
)
def test_a_damaged_checkpoint_is_refused(copy: Path, damage: Damage, message: str) -> None:
    """Each kind of damage is named."""
    damage(copy)
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(copy)


def test_every_stage_needs_its_graph(copy: Path) -> None:
    """A precision with two graphs for three stages is refused, though manifest and files agree."""
    (copy / "onnx/int8/stage-2.onnx").unlink()
    files = json.loads((copy / "manifest.json").read_text())["files"]
    del files["onnx/int8/stage-2.onnx"]
    edit_manifest(copy, files=files)
    with pytest.raises(CheckpointError, match="3 stages"):
        read_checkpoint(copy)


def test_a_missing_precision_is_named(tiny_checkpoint: Path) -> None:
    """The message lists what there is."""
    with pytest.raises(CheckpointError, match="it has: fp32, int8"):
        read_checkpoint(tiny_checkpoint).stage_graphs("fp16")


def test_writing_never_overwrites_and_leaves_nothing_behind(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """An existing folder is an error; a failed write leaves no half checkpoint and no scratch folder."""
    original = read_checkpoint(tiny_checkpoint)
    arguments = {
        "config": original.config,
        "tokenizer": b"{}",
        "card": "card",
        "version": "2",
        "source": "test",
        "golden": original.golden,
    }
    with pytest.raises(FileExistsError):
        write_checkpoint(tiny_checkpoint, files={"model.safetensors": b"x"}, **arguments)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match="nothing to run"):
        write_checkpoint(tmp_path / "new", files={}, **arguments)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        write_checkpoint(tmp_path / "new", files={"model.safetensors": tmp_path / "no"}, **arguments)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
