"""Training in two processes, which are launched once for students and text rankers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPT = """
from pathlib import Path
from tests.papers.pairwise import test_run
from tests.training.learning import test_processes
test_run.train_alike(Path({folder!r}) / "pairwise")
test_processes.train(Path({folder!r}) / "student", accumulate=2)
"""
"""Students are the last, as `leave_group` ends the group."""


def train_in_two_processes(folder: Path) -> None:
    """Write the runs `student` and `pairwise` into the folder, as torchrun starts their processes."""
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
