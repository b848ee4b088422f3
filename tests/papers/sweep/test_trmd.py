"""`cerberank train sweep trmd` on a tiny random encoder: teachers, students, table, and how it goes on."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from cerberank import cli
from tests.program import program, replaced
from tests.tiny import save_cross_encoder
from tests.training.letters import dev_jsonl, jsonl

from cerberank_models.first_stage.text_ranker_folder import read_text_ranker
from cerberank_papers.pairwise.settings import SYSTEMS
from cerberank_papers.sweep import sweep_runs, trmd


def steps(run: Path) -> int:
    return max(json.loads(line)["step"] for line in (run / "log.jsonl").read_text().splitlines())


def call(folder: Path, *more: str) -> int:
    data = jsonl(folder)
    return program("train sweep trmd")(
        replaced(
            [
                *("--base", str(folder / "base"), "--train", data, "--test", data),
                *("--dev", dev_jsonl(folder)),
                *(
                    "--out",
                    str(folder / "out"),
                    "--layers",
                    "2",
                    "--steps",
                    "2",
                    "--examples-per-step",
                    "2",
                    "--top",
                    "3",
                    "--positives",
                    "any",
                ),
                *("--question-length", "12", "--document-length", "30", "--window", "16"),
            ],
            *more,
        )
    )


def test_a_table_from_the_base(tmp_path: Path, ran: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One row brings its teachers; another is added by repeating the call, and what is finished is not run again."""
    save_cross_encoder("bert", tmp_path / "base")
    longer = ("--mono-options", "--steps 3 --clip 0.5")
    assert call(tmp_path, "--rows", "trmd-twin", *longer) == 0
    assert ran == ["pairwise", "evaluate"] * 3
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir() if path.is_dir()} == {"mono-1", "twin-1", "trmd-twin-1", "systems"}
    config = read_text_ranker(out / "trmd-twin-1" / "ranker").ranker.config
    assert (config.name, config.first_ranker, config.transformer.layers) == ("trmd-twin", "residual", 2)
    assert "results table" not in capsys.readouterr().out

    ran.clear()
    next((out / "systems" / "mono" / "1").glob("jsonl-data-*.jsonl")).unlink()
    assert call(tmp_path, "--rows", "tr-twin,trmd-twin", *longer) == 0
    assert ran == ["evaluate", "pairwise", "evaluate"]
    shown = capsys.readouterr().out
    lines = [line.strip() for line in shown.splitlines()]
    (header,) = [number for number, line in enumerate(lines) if line.startswith("| AP | jsonl-data-")]
    assert "(5)" in lines[header]
    assert [line.split(" ")[1] for line in lines[header + 2 : header + 6]] == ["mono", "twin", "tr-twin", "trmd-twin"]
    assert [steps(out / name) for name in ("mono-1", "twin-1", "trmd-twin-1")] == [3, 2, 2]
    (against,) = [line for line in lines if line.startswith("cerberank results table")]
    assert cli.main(shlex.split(against)[1:]) == 0
    assert "differs from tr-twin" in capsys.readouterr().out

    ran.clear()
    assert call(tmp_path, "--rows", "trmd-twin", *longer, "--device", "cpu") == 0
    assert ran == []
    assert shown.endswith(capsys.readouterr().out)


def test_other_settings_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another sample or option of `pairwise` in the same folder, and an option that rows set: an exit code, and why."""
    save_cross_encoder("bert", tmp_path / "base")

    def fail(verb: str, *options: object) -> None:
        raise sweep_runs.CommandError(f"`cerberank {verb}` ended with exit code 137")

    monkeypatch.setattr(sweep_runs, "run_command", fail)
    assert call(tmp_path, "--rows", "mono") == 1
    assert "ended with exit code 137" in capsys.readouterr().err
    assert call(tmp_path, "--rows", "mono", "--system=twin") == 2
    assert call(tmp_path, "--rows", "mono", "--mono-options=--seed 4") == 2
    more = ("--sample", "3", "--learning-rate", "0.1", "--mono-options=--steps 4")
    assert call(tmp_path, "--rows", "mono", *more) == 1
    errors = capsys.readouterr().err
    assert "--system is set by the row" in errors
    assert "--seed is set by the row" in errors
    for said in ("learning_rate 1e-06, not 0.1", "mono's training.steps None, not 4", "sample None, not 3"):
        assert said in errors
    assert "137" not in errors


def test_rows_are_systems_after_their_teachers() -> None:
    """Every row is a system of `pairwise`; a taught one comes after monoBERT and the bi-encoder of its kind."""
    order = list(trmd.ROWS)
    assert set(order) <= set(SYSTEMS)
    for name in order:
        if SYSTEMS[name].taught:
            teachers = ("mono", SYSTEMS[name].token_ranker)
            assert all(teacher in order[: order.index(name)] for teacher in teachers)


def test_folds_are_joined(tmp_path: Path, ran: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A network for each fold, and one table over the questions of all of them."""
    save_cross_encoder("bert", tmp_path / "base")
    data = Path(jsonl(tmp_path).partition(":")[2])
    rows = map(json.loads, data.read_text().splitlines())
    lines = [json.dumps(row | {"id": str(number)}) + "\n" for number, row in enumerate(rows)]
    for fold in (1, 2):
        (tmp_path / f"test-{fold}.jsonl").write_text("".join(lines[fold - 1 :: 2]))
    folds = ("--rows", "mono", "--folds", "1,2", "--test", f"jsonl:{tmp_path}/test-{{fold}}.jsonl")
    assert call(tmp_path, *folds) == 0
    assert ran == ["pairwise", "evaluate"] * 2
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"fold-1", "fold-2", "systems", "table.md"}
    table = (tmp_path / "out" / "table.md").read_text()
    assert f"({len(lines)})" in table
    assert [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| P@20")] == ["| P@20"]
    assert call(tmp_path, "--folds", "1,2") == 2
    assert "--test has no {fold}" in capsys.readouterr().err
