"""Training in two processes, which are launched once for students and text rankers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = """
from pathlib import Path
from tests.training.learning import test_processes
from tests.training.learning.pairwise import test_run
test_run.train_alike(Path({folder!r}) / "pairwise")
test_processes.train(Path({folder!r}) / "student", accumulate=2)
"""
"""Students are the last, as `leave_group` ends the group."""


@pytest.fixture(scope="session")
def two_processes(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A folder with the runs `student` and `pairwise`, as torchrun starts their processes."""

    def launch(folder: Path) -> None:
        folder.mkdir()
        launched = subprocess.run(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
                *("--no-python", sys.executable, "-c", SCRIPT.format(folder=str(folder))),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert launched.returncode == 0, launched.stderr[-2000:]

    return made_once("two-processes", launch)
