"""The job of docs/add-a-job.md is whole: it trains, and has what the runner gives every job."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import save_cross_encoder
from tests.training.letters import dev_jsonl, jsonl
from tools.reference import DOCS
from tools.size import lines_of_code
from transformers import AutoModelForSequenceClassification

from cerberank_training.commands.runs import run_rows

PAGE = (DOCS / "add-a-job.md").read_text()
JOB, CALL, COMMAND = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def called(folder: Path, steps: int) -> dict[str, Any]:
    """The results of the page's call, with a tiny base and data of its own."""
    changes = {
        '"cross-encoder/ms-marco-MiniLM-L6-v2"': repr(str(folder / "base")),
        '"csv:train.csv"': repr(jsonl(folder)),
        '"csv:dev.csv"': repr(dev_jsonl(folder)),
        'Path("ranknet")': f"Path({str(folder / 'out')!r})",
        "steps=200, evaluate_every=50, learning_rate=2e-5": f"steps={steps}, evaluate_every=5, learning_rate=1e-3",
    }
    call = CALL
    for placeholder, value in changes.items():
        assert placeholder in call
        call = call.replace(placeholder, value)
    (folder / "job.py").write_text(JOB + call)
    return runpy.run_path(str(folder / "job.py"))["results"]


def test_the_job_of_the_page_learns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A repeated call does nothing; the list of runs has it as finished; the result is a cross-encoder of
    transformers. The page says how long the job is.
    """
    assert f"It has {lines_of_code(JOB)} lines of code" in PAGE
    save_cross_encoder("bert", tmp_path / "base", max_position_embeddings=160)
    first = called(tmp_path, 20)
    assert first["best"] > first["start"]
    assert called(tmp_path, 20) == first
    assert f"is finished (dev_map {first['best']:.2f}); nothing is left to train" in capsys.readouterr().err
    assert [(row.verb, row.state) for row in run_rows(tmp_path / "out")] == [("ranknet", "finished")]
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").config.num_labels == 2


def test_the_command_of_the_page_trains(tmp_path: Path) -> None:
    save_cross_encoder("bert", tmp_path / "base", max_position_embeddings=160)
    (tmp_path / "job.py").write_text(JOB + COMMAND)
    words = ["--base", str(tmp_path / "base"), "--train", jsonl(tmp_path), "--dev", dev_jsonl(tmp_path), "--steps", "1"]
    command, bound, _ = runpy.run_path(str(tmp_path / "job.py"))["app"].parse_args(
        [*words, "--out", str(tmp_path / "o")]
    )
    command(*bound.args, **bound.kwargs)
    assert (tmp_path / "o" / "model.safetensors").is_file()
