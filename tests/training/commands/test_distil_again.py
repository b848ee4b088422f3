"""`train distil` on a folder that holds a run: it goes on or is refused, and never does another thing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.program import program, replaced
from tests.training.commands.conftest import DISTIL

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_training.learning import student_job


@pytest.fixture
def run(distilled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of a run of 10 steps, a copy of which is in `tmp_path`."""
    shutil.copytree(distilled, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return list(DISTIL)


def log(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def test_other_scores_under_the_same_name_are_refused(
    run: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By what differs in the teacher, before the base is loaded. Numbers of files may differ."""
    monkeypatch.setattr(student_job, "build_student", lambda *_, **__: pytest.fail("a base was loaded"))
    (tmp_path / "run" / "checkpoint").rename(tmp_path / "away")  # as if the run had been killed before its export
    manifest = json.loads((tmp_path / "scores" / "manifest.json").read_text()) | {"shard_pairs": 30}
    manifest["teacher"]["max_length"] = 48
    (tmp_path / "scores" / "manifest.json").write_text(json.dumps(manifest))
    assert program("train distil")([*run, "--steps", "10"]) == 1
    assert "begun with teachers.1.max_length 32, not 48" in capsys.readouterr().err


def test_a_run_that_patience_ends_says_so(run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the step of the best weights, in the last lines, the card and the version. So low a rate gives no gain."""
    for option, value in (("--out", "patient"), ("--evaluate-every", "2")):
        run = replaced(run, option, value)
    assert program("train distil")([*run, "--steps", "40", "--patience", "2", "--learning-rate", "1e-9"]) == 0
    said = capsys.readouterr().out
    assert " at step 2 (" in said
    assert "; training ended after 6 of 40 steps, because 2 evaluations had no gain" in said
    assert " at step 2 |" in (tmp_path / "patient" / "checkpoint" / "README.md").read_text()
    assert "-steps-6-" in read_checkpoint(tmp_path / "patient" / "checkpoint").manifest.version


def test_heads_that_start_as_copies_are_told_once(
    run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A call that goes on does not start from the base."""
    words = [*replaced(run, "--out", "copies"), "--dropout", "0", "--steps", "1"]
    capsys.readouterr()
    for count in (1, 0):
        assert program("train distil")(words) == 0
        (tmp_path / "copies" / "checkpoint").rename(tmp_path / f"away-{count}")
        assert capsys.readouterr().err.count("heads 1, 2 start from the same weights") == count


def test_only_what_is_missing_is_done(run: list[str], tmp_path: Path) -> None:
    """The export was killed: the checkpoint is written from the best weights, and nothing is trained."""
    checkpoint = tmp_path / "run" / "checkpoint"
    before = read_checkpoint(checkpoint).manifest
    checkpoint.rename(tmp_path / "away")
    steps = log(tmp_path / "run")
    assert program("train distil")([*run, "--steps", "10"]) == 0
    after = read_checkpoint(checkpoint).manifest
    assert after.files["model.safetensors"] == before.files["model.safetensors"]
    assert (after.version, after.metrics) == (before.version, before.metrics)
    assert log(tmp_path / "run") == steps


@pytest.mark.parametrize(
    ("option", "difference"),
    [
        (["--forms", "fp32"], "checkpoint.forms [], not ['fp32']"),
        (["--name", "other"], "checkpoint.name None, not 'other'"),
        (["--version", "2"], "checkpoint.version None, not '2'"),
        (["--terms", "CC BY 4.0"], "checkpoint.terms None, not 'CC BY 4.0'"),
    ],
)
def test_a_finished_checkpoint_is_not_silently_left_as_it_is(
    option: list[str], difference: str, run: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A change that another verb makes in it is refused by the name of the option, and with that verb."""
    capsys.readouterr()
    assert program("train distil")([*run, "--steps", "10", *option]) == 1
    said = capsys.readouterr().err
    assert f"was begun with {difference}; " in said
    assert "`cerberank checkpoint card run/checkpoint` changes name, version and terms" in said
