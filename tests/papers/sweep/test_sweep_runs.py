"""Evaluations and the table of a sweep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.training.evaluation.systems.systems import write_system

from cerberank_papers.sweep import sweep_runs
from cerberank_papers.sweep.sweep_runs import (
    CommandError,
    TableOptions,
    evaluate_run,
    ranker_evaluation,
    run_command,
    write_table,
)
from cerberank_training.evaluation.measures import parse_measures
from cerberank_training.evaluation.systems.comparison import compare_systems
from cerberank_training.evaluation.systems.folders import read_systems
from cerberank_training.evaluation.systems.rendering import markdown_table

TESTS = ("jsonl:a/test.jsonl", "jsonl:b/test.jsonl")


def test_the_table_is_that_of_eval_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each set is evaluated once, also two files of one name. Rows have their own seeds and the sweep's order, and are
    compared with the baseline as soon as it is there. A run that lacks a set is not in the table.
    """
    evaluated: list[tuple[str, str, object]] = []

    def evaluate(name: str, *arguments: object) -> None:
        path = Path(str(arguments[-1]))
        row, seed = path.parts[-3:-1]
        evaluated.append((row, seed, arguments[arguments.index("--data") + 1]))
        write_system(path.parent, {"z": 1.5, "a": 0.2}[row], {path.stem: 9}, seed=int(seed))

    def table_of(tests: tuple[str, ...]) -> str:
        write_table(replace(table, test=tests), ["z", "a", "none"], ["More."], measures="AP P@1", baseline="a")
        return (tmp_path / "table.md").read_text()

    monkeypatch.setattr(sweep_runs, "run_command", evaluate)
    table = TableOptions(test=TESTS, out=tmp_path)
    ranker = ranker_evaluation(table, "--checkpoint", "x")
    assert [evaluate_run(table, "z", seed, ranker) for seed in (1, 10, 1)] == [True, True, False]
    assert evaluated == [("z", seed, test) for seed in ("1", "10") for test in TESTS]
    assert "differs from" not in table_of(TESTS)
    assert evaluate_run(table, "a", 1, ranker)
    systems = read_systems([tmp_path / "systems" / row for row in ("z", "a")])
    tables = [markdown_table(compare_systems(systems, each, baseline="a")) for each in parse_measures("AP P@1")]
    assert table_of(TESTS) == "\n\n".join([*tables, "More.\n"])
    assert "| z (2 runs) |" in tables[0]

    more = (*TESTS, "jsonl:c.jsonl")
    assert evaluate_run(replace(table, test=more), "z", 10, ranker)
    assert "| z |" in (shown := table_of(more))
    assert "| a |" not in shown
    assert table_of(TESTS) == "\n\n".join([*tables, "More.\n"])


def test_a_command_runs_in_a_process_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    """Its output is the sweep's; its error ends the sweep with its exit code."""
    run_command("train recipes", "mini")
    assert "mini" in capfd.readouterr().out
    with pytest.raises(CommandError, match="`cerberank train recipes` ended with exit code 1;"):
        run_command("train recipes", "no-recipe")
    assert "no-recipe" in capfd.readouterr().err
