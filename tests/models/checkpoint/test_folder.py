from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path

import pytest
from tests.tiny import roberta_tokenizer

from cerberank_models.checkpoint import folder
from cerberank_models.checkpoint.folder import (
    CheckpointError,
    copy_checkpoint,
    read_checkpoint,
    write_checkpoint,
)

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


def rewrite(path: Path, name: str, content: bytes) -> None:
    """Change a file and its hash in the manifest."""
    (path / name).write_bytes(content)
    files = json.loads((path / "manifest.json").read_text())["files"]
    edit_manifest(path, files={**files, name: hashlib.sha256(content).hexdigest()})


def edited(path: Path, name: str, **changes: object) -> bytes:
    """The first JSON document of a file with changed keys."""
    return json.dumps({**json.JSONDecoder().raw_decode((path / name).read_text())[0], **changes}).encode()


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
        (lambda path: rename_in_manifest(path, "README.md", "README\0.md"), "not a path within"),
        (lambda path: rename_in_manifest(path, "README.md", "a" * 256), "not a path within"),
        (lambda path: rename_in_manifest(path, "README.md", "a/" * 500 + "b"), "not a path within"),
        (lambda path: rename_in_manifest(path, "README.md", "manifest.json/x"), "lies below one"),
        (lambda path: rename_in_manifest(path, "README.md", "onnx/int8/stage-0.onnx/x"), "lies below one"),
        (lambda path: rename_in_manifest(path, "README.md", "manifest.json"), "the path of another file"),
        (lambda path: rename_in_manifest(path, "README.md", "CARD.md"), r"lacks README\.md"),
        (lambda path: os.truncate(path / "manifest.json", 2 << 20), r"manifest\.json has more than 1048576 bytes"),
        (lambda path: os.truncate(path / "config.json", 2 << 20), r"config\.json has more than 1048576 bytes"),
        (lambda path: os.truncate(path / "tokenizer.json", 3 << 30), r"tokenizer\.json has more than"),
        (lambda path: os.truncate(path / "golden.jsonl", 3 << 30), r"golden\.jsonl has more than"),
        (lambda path: (path / "link").symlink_to("/etc/passwd"), "symbolic links"),
        (lambda path: (path / "folder").symlink_to(path.parent), "symbolic links.*folder"),
        (lambda path: (path / "onnx").rename(path.parent / "o") and (path / "onnx").symlink_to("../o"), "links.*onnx"),
        (lambda path: edit_manifest(path, metrics={"map": float("nan")}), "metrics.map"),
        (lambda path: edit_manifest(path, version="../1"), "version"),
        (lambda path: edit_manifest(path, files={f"f{number}": "0" * 64 for number in range(1001)}), "files: .*1000"),
        (lambda path: edit_manifest(path, **{f"k{number}": 1 for number in range(30)}), "; and 25 more$"),
        (lambda path: [(path / f"{number}").touch() for number in range(15)], "not name: 0, .* and 5 more$"),
        (lambda path: [(path / f"{number}").mkdir() for number in range(2001)], "more than 2000 files and folders"),
    ],
)
def test_a_damaged_checkpoint_is_refused(copy: Path, damage: Damage, message: str) -> None:
    """For each kind of damage the error names it."""
    damage(copy)
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(copy)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", lambda path: edited(path, "config.json", surprise=1), r"config\.json: surprise"),
        ("config.json", lambda path: edited(path, "config.json", model_type="bert"), r"config\.json: model_type"),
        ("config.json", lambda _: b"\xff\xfe", r"config\.json: content"),
        ("golden.jsonl", lambda _: b"\n", r"golden\.jsonl holds no question"),
        ("golden.jsonl", lambda _: b"{", r"golden\.jsonl: content"),
        ("golden.jsonl", lambda _: b"{}\n" * 1001, r"golden\.jsonl holds 1001 questions, more than 1000"),
        ("golden.jsonl", lambda path: edited(path, "golden.jsonl", scores={"int8": [0.5]}), "same precisions"),
        (
            "golden.jsonl",
            lambda path: edited(path, "golden.jsonl", scores={"int8": [0.5]}, tolerance={"int8": 0.1}),
            "int8: 1 scores for 6 candidates",
        ),
    ],
)
def test_an_unusable_file_is_refused_though_its_hash_is_right(
    copy: Path, name: str, content: Callable[[Path], bytes], message: str
) -> None:
    """The error names the file and the key."""
    rewrite(copy, name, content(copy))
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(copy)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", lambda _: b"{}", r"tokenizer\.json cannot be used"),
        ("tokenizer.json", lambda _: roberta_tokenizer().to_str().encode(), "lacks .*CLS"),
        (
            "config.json",
            lambda path: edited(
                path,
                "config.json",
                transformer={**json.loads((path / "config.json").read_text())["transformer"], "vocab_size": 50},
            ),
            "not among the network's 50 embeddings",
        ),
    ],
)
def test_a_tokenizer_that_does_not_fit_is_refused(
    copy: Path, name: str, content: Callable[[Path], bytes], message: str
) -> None:
    """A file that is not a tokenizer, another family's tokenizer, and ids without an embedding are refused."""
    rewrite(copy, name, content(copy))
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(copy).encoder()


def test_every_stage_needs_its_graph(copy: Path) -> None:
    """A precision with two graphs for three stages is refused, though manifest and files agree."""
    (copy / "onnx/int8/stage-2.onnx").unlink()
    files = json.loads((copy / "manifest.json").read_text())["files"]
    del files["onnx/int8/stage-2.onnx"]
    edit_manifest(copy, files=files)
    with pytest.raises(CheckpointError, match="3 stages"):
        read_checkpoint(copy)


def test_a_missing_precision_is_named(tiny_checkpoint: Path) -> None:
    """The error lists the precisions that exist, and names the command that makes this one."""
    with pytest.raises(CheckpointError, match="it has: fp32, int8") as error:
        read_checkpoint(tiny_checkpoint).stage_graphs("fp16")
    assert f"`cerberank export {tiny_checkpoint} OUT --forms fp16` makes them" in str(error.value)


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
    for name in ("../escaped", "/tmp/escaped", "config.json", "manifest.json"):
        with pytest.raises(CheckpointError, match="not a name for a further file"):
            write_checkpoint(tmp_path / "new", files={name: b"x"}, **arguments)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_copy_reads_every_file_once(tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source while it is copied; the copy then lies where it was to lie, and holds what the manifest states."""
    read: list[str] = []
    open_regular = folder.open_regular

    def noted(path: Path) -> BufferedReader:
        if path.name == "model.safetensors":
            read.append(path.parent.name)
        return open_regular(path)

    monkeypatch.setattr(folder, "open_regular", noted)
    copied = copy_checkpoint(tiny_checkpoint, tmp_path / "copy")
    assert read == [tiny_checkpoint.name]
    assert copied == read_checkpoint(tmp_path / "copy")
