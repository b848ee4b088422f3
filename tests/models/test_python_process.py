"""A Python process of our own imports nothing from the working folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cerberank_models.python_process import python_command


def test_files_of_the_working_folder_are_not_run(tmp_path: Path) -> None:
    """The program itself, a library and a module of Python: each is found where it is installed."""
    for name in ("cerberank", "cyclopts", "json"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')")
    done = subprocess.run(
        python_command("cerberank", "import", "--help"), cwd=tmp_path, capture_output=True, check=True
    )
    assert b"--forms" in done.stdout
    assert not (tmp_path / "ran").exists()
