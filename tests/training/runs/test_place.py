"""Folders that cannot be written, a full disk, devices that are not there: one line that names the option."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tiny import save_cross_encoder
from tests.training.letters import dev_jsonl, jsonl

from cerberank_training.runs import place
from cerberank_training.runs.place import check_writable, writing


def test_a_place_that_cannot_be_written_is_named_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the way, and a folder without permission; a folder that is not there yet is no error, and not made."""
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=f"^--out {tmp_path}/file/out: {tmp_path}/file is a file, not a folder"):
        check_writable(tmp_path / "file" / "out")
    check_writable(tmp_path / "new" / "out")
    assert not (tmp_path / "new").exists()

    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(place.tempfile, "TemporaryFile", refuse)
    with pytest.raises(OSError, match=f"^--out {tmp_path}/new cannot be written: Permission denied"):
        check_writable(tmp_path / "new")


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    """A fault of ours is not called a full disk."""
    with pytest.raises(RuntimeError, match="a fault"), writing(tmp_path):
        raise RuntimeError("a fault")
    with pytest.raises(FileExistsError), writing(tmp_path):
        raise FileExistsError("there")


def test_a_disk_that_is_full_in_the_middle_of_a_run(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: one line that names the folder, no traceback."""
    save_cross_encoder("bert", tmp_path / "base")
    data = jsonl(tmp_path)
    command = [
        *(sys.executable, "-m", "cerberank", "train", "distil", "--recipe", "tiny", "--strategy", "hard"),
        *("--base", str(tmp_path / "base"), "--train", data, "--out", str(tmp_path / "out")),
        *("--dev", dev_jsonl(tmp_path)),
    ]

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = subprocess.run(command, check=False, capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"cerberank train distil: --out {tmp_path / 'out'} could not be written: File too large")
    assert "Traceback" not in done.stderr
