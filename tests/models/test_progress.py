"""Progress of long work is seen on a terminal and in logs."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios

SCRIPT = """
import time
from cerberank_models import progress as module
module.SECONDS = {seconds}
for _ in module.progress(range(6), unit="question", desc="score"):
    time.sleep(0.05)
"""


def written(seconds: float) -> list[str]:
    """The lines of standard error, which is a pipe."""
    command = [sys.executable, "-c", SCRIPT.format(seconds=seconds)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()


def test_a_log_has_a_line_now_and_then() -> None:
    """Each drawing is a line, with the work that is done; short work leaves none."""
    lines = written(0.1)
    assert 2 <= len(lines) <= 4
    assert all(line.startswith("score: ") and "/6 [" in line for line in lines)
    assert sum("6/6 [" in line for line in lines) == 1
    assert written(30.0) == []


def test_a_terminal_has_a_bar() -> None:
    """It is drawn over and over in one line."""
    terminal, end = pty.openpty()
    termios.tcsetwinsize(end, (24, 100))
    command = [sys.executable, "-c", SCRIPT.format(seconds=30.0)]
    subprocess.run(command, stderr=end, check=True)
    os.close(end)
    shown = os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert "6/6 [" in shown
    assert shown.count("\r") > 1
    assert shown.count("\n") == 1
