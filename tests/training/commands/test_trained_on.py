"""Every command that evaluates says so, or ends, where its data are those that the checkpoint was trained on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.program import program
from tests.training.letters import jsonl

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_training.runs.run_data import data_content
from cerberank_training.runs.summary import spec_name
from cerberank_training.runs.unlabelled import unlabelled, unlabelled_trained_on


@pytest.fixture
def trained(tiny_checkpoint: Path, tmp_path: Path) -> tuple[str, str]:
    """A checkpoint and the data that its summary names."""
    spec = jsonl(tmp_path)
    summary = {"data": {"name": spec_name(spec), "sha256": data_content(spec)["sha256"]}}
    path = tmp_path / "trained"
    revise_checkpoint(
        read_checkpoint(tiny_checkpoint), path, version="2", files={"run.json": json.dumps(summary).encode()}
    )
    return str(path), spec


@pytest.mark.parametrize("command", ["train tune", "checkpoint calibrate"])
def test_bounds_and_probabilities_are_not_measured_on_training_data(
    command: str, trained: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are promises for other questions."""
    checkpoint, data = trained
    assert program(command)([checkpoint, "--data", data, "--precision", "fp32", "--out", str(tmp_path / "out")]) == 1
    assert f"--data: {checkpoint} was trained on {data}: figures on it say nothing" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_figures_and_gates_on_training_data_say_so(
    trained: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside the figures, which may be wanted; a gate compares two forms of the same network."""
    checkpoint, data = trained
    common = ["--checkpoint", checkpoint, "--data", data, "--precision", "fp32"]
    said = f"{checkpoint} was trained on {data}: figures on it say nothing of new questions"
    for more in ([], ["--depths", "3"]):
        assert program("evaluate")([*common, *more]) == 0
        assert f"{said}." in capsys.readouterr().out
    out = str(tmp_path / "out")
    assert program("export")([checkpoint, out, "--forms", "none", "--gate", data]) == 0
    assert f"--gate: {said}" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["jsonl:", ""])
def test_exits_that_learn_on_training_data_say_so(form: str, trained: tuple[str, str]) -> None:
    """The same lines are data in the generic form, and a file of `cerberank rank`."""
    checkpoint, data = trained
    named = form + data.partition(":")[2]
    sentence = unlabelled_trained_on(Path(checkpoint), named, unlabelled(named))
    assert sentence.startswith(f"{checkpoint} was trained on {data}: figures on it")
