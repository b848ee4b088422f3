"""Folders that cannot be written, a full disk, devices that are not there: one line that names the option."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.program import program
from tests.tiny import save_cross_encoder
from tests.training.letters import dev_jsonl, jsonl

from cerberank_training.runs import folder
from cerberank_training.runs.folder import check_writable, writing

distil = program("train distil")


def test_a_place_that_cannot_be_written_is_named_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the way, and a folder without permission; a folder that is missing yet is accepted, and not made."""
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=f"^--out {tmp_path}/file/out: {tmp_path}/file is a file, not a folder"):
        check_writable(tmp_path / "file" / "out")
    check_writable(tmp_path / "new" / "out")
    assert not (tmp_path / "new").exists()

    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(folder.tempfile, "TemporaryFile", refuse)
    with pytest.raises(OSError, match=f"^--out {tmp_path}/new cannot be written: Permission denied"):
        check_writable(tmp_path / "new")


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    """A fault of ours is not called a full disk."""
    with pytest.raises(RuntimeError, match="a fault"), writing(tmp_path):
        raise RuntimeError("a fault")
    with pytest.raises(FileExistsError), writing(tmp_path):
        raise FileExistsError("there")


@pytest.fixture
def full_disk() -> Iterator[None]:
    """A limit on the size of files stands for the disk."""
    before, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


def test_a_disk_that_is_full_in_the_middle_of_a_run(
    tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that names the folder, no traceback."""
    save_cross_encoder("bert", tmp_path / "base")
    data, dev, out = jsonl(tmp_path), dev_jsonl(tmp_path), tmp_path / "out"
    call = ["--recipe", "tiny", "--base", str(tmp_path / "base"), "--train", data, "--dev", dev]
    request.getfixturevalue("full_disk")
    assert distil([*call, "--out", str(out)]) == 1
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith(
        f"cerberank train distil: --out {out} could not be written: File too large"
    )
    assert "Traceback" not in error
