"""The lock of a training process: seen by others, refused to a second one, gone when its holder is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cerberank_training.runs.folder import is_running, running

HOLD = """
import sys, time
from pathlib import Path
from cerberank_training.runs.folder import running
with running(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_killed_process_runs_no_more(tmp_path: Path) -> None:
    """While it lives, the folder is running and another run is refused; after kill -9 it is free."""
    assert not is_running(tmp_path)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        assert is_running(tmp_path)
        with pytest.raises(ValueError, match="another process trains in"), running(tmp_path):
            pass
        process.kill()
    assert not is_running(tmp_path)
    with running(tmp_path):
        assert is_running(tmp_path)
