"""The commands of a sweep, in the process of its test."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from cerberank import cli

from cerberank_models.python_process import python_command
from cerberank_papers.sweep import sweep_runs


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that were run; each runs in this process, to save its start."""
    verbs: list[str] = []

    real = subprocess.run

    def run(command: list[str], *, check: bool, **more: Any) -> object:
        if command[0] == "git":  # a run's record tells the commit
            return real(command, check=check, **more)
        words = command[len(python_command("cerberank")) :]
        verbs.append(words[words[0] == "train"])
        code = cli.main(words)
        return sweep_runs.subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(sweep_runs.subprocess, "run", run)
    return verbs
