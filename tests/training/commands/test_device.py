"""`--device`: refused by its name before data are read, and what `auto` means without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.program import program
from tests.tiny import save_cross_encoder

from cerberank_training.runs.settings import RunOptions

LEARN = ("--base", "nowhere", "--train", "jsonl:nowhere", "--dev", "jsonl:nowhere", "--out", "OUT")
STRATEGIES = (*("--recipe", "tiny", "--base", "b", "--groups", "jsonl:g", "--dev", "jsonl:d", "--test", "t"),)


@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (program("train distil"), ("--recipe", "tiny", *LEARN)),
        (program("train pairwise"), ("--system", "mono", "--steps", "1", *LEARN)),
        (program("train teach"), LEARN),
        (program("data score"), ("OUT", "--teacher", "TEACHER", "--data", "jsonl:nowhere")),
        (program("train accelerate"), ("CHECKPOINT", "--data", "nowhere", "--out", "OUT")),
        (program("data mine"), ("--data", "jsonl:nowhere", "--by", "nowhere", "--out", "OUT")),
        (program("data embed"), ("CHECKPOINT", "nowhere", "OUT")),
        (program("evaluate"), ("--checkpoint", "CHECKPOINT", "--data", "jsonl:nowhere")),
        (program("evaluate"), ("--checkpoint", "CHECKPOINT", "--data", "jsonl:nowhere", "--backend", "onnx")),
        (program("train tune"), ("CHECKPOINT", "--data", "jsonl:nowhere", "--out", "OUT")),
        (program("train sweep cerberus"), (*STRATEGIES, "--out", "OUT", "--teacher", "a", "--rows", "hard")),
        (program("train sweep trmd"), (*LEARN, "--test", "jsonl:nowhere", "--steps", "1")),
    ],
)
def test_a_device_that_is_not_there_is_refused_before_data_are_read(
    *,
    main: Callable[[list[str]], int],
    arguments: tuple[str, ...],
    tmp_path: Path,
    tiny_checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line that names the option, in every verb that computes; the data of these calls are not there either."""
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    teacher = save_cross_encoder("bert", tmp_path / "teacher")
    named = {"OUT": tmp_path / "out", "CHECKPOINT": tiny_checkpoint, "TEACHER": teacher}
    capsys.readouterr()
    assert main([*(str(named.get(part, part)) for part in arguments), "--device", "cuda:99"]) == 1
    error = capsys.readouterr().err
    assert ": --device cuda:99 cannot be used: " in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "processors", "workers"),
    [
        ({"device": "cpu"}, 16, 0),
        ({"device": "cuda:1"}, 16, 4),
        ({"device": "cuda"}, 2, 2),
        ({"device": "cuda", "workers": 0}, 16, 0),
    ],
)
def test_batches_for_a_gpu_are_made_by_as_many_processes_as_there_are_processors(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], processors: int, workers: int
) -> None:
    """At most four; more than processors would only wait for each other, and PyTorch warns of them."""
    monkeypatch.setattr("cerberank_training.runs.settings.usable_processors", lambda: processors)
    assert RunOptions(**options).batch_workers == workers


def test_strategies_that_do_not_fit_are_refused_before_any_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One teacher is enough for some rows, whose runs would take hours before `kd_sum` fails."""
    assert program("train sweep cerberus")([*STRATEGIES, "--out", str(tmp_path / "out"), "--teacher", "a"]) == 1
    assert (
        "--strategy kd_sum is for one head with several teachers; there are 1 head(s) and 1 teacher(s)"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()
