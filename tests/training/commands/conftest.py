"""A run of `train distil` that tests copy."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest
from tests.program import program
from tests.tiny import save_cross_encoder
from tests.training.letters import dev_jsonl, jsonl, teacher_scores

DISTIL = (
    *("--recipe", "tiny", "--base", "base", "--train", "jsonl:data.jsonl", "--exits", "", "--heads", "2"),
    *("--dev", "jsonl:dev.jsonl", "--forms", "none"),
    *("--teacher", "scores", "--evaluate-every", "5", "--out", "run"),
)
"""The options of the run but for its ten steps; its paths are relative, so that copies of its folder are equal runs."""


@pytest.fixture(scope="session")
def distilled(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A folder with `base`, `data.jsonl`, `dev.jsonl`, `scores` and `run`, which is finished; read-only for tests."""

    def make(folder: Path) -> None:
        folder.mkdir()
        save_cross_encoder("bert", folder / "base")
        jsonl(folder)
        dev_jsonl(folder)
        teacher_scores(folder / "scores")
        with chdir(folder):
            assert program("train distil")([*DISTIL, "--steps", "10"]) == 0

    return made_once("distilled", make)
