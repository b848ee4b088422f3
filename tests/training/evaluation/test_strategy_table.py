"""The comparison of strategies: which runs, which figures, and the verb on a tiny student."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from tests.program import program
from tests.tiny import save_cross_encoder
from tests.training.letters import dev_jsonl, jsonl

import cerberank_training.evaluation.strategy_table
from cerberank_training.evaluation.per_question import QuestionRecord, RankingRecord, Records
from cerberank_training.evaluation.strategy_table import chosen, plan, strategy_table
from cerberank_training.learning.strategies import check_strategy


def records(precisions: list[float]) -> Records:
    metrics = [{"map": value, "mrr": value, "p@1": float(value > 0.5)} for value in precisions]
    return {
        str(index): QuestionRecord(
            id=str(index), candidates="", labels=(1, 0), rankings={"final": RankingRecord(metrics=row, ranks=(0, 1))}
        )
        for index, row in enumerate(metrics)
    }


def test_every_planned_run_fits_its_strategy() -> None:
    """With three teachers of different kinds, and three of one kind for hydra; the doctest holds."""
    for run in plan(["a", "b", "c"], ["d", "e", "f"]):
        check_strategy(run.strategy, heads=run.heads, teachers=len(run.teachers))
    assert doctest.testmod(cerberank_training.evaluation.strategy_table).failed == 0


def test_means_spread_and_the_paired_test() -> None:
    """Means over questions and seeds, spread over seeds, Wilcoxon on the per-question means of the common seeds."""
    rng = np.random.default_rng(0)
    cerberus = {seed: rng.random(20).tolist() for seed in (1, 2)}
    single = {1: rng.random(20).tolist()}
    text = strategy_table(
        {
            "single": {seed: records(values) for seed, values in single.items()},
            "cerberus": {seed: records(values) for seed, values in cerberus.items()},
        }
    )
    rows = {
        cells[1]: cells[2:-1] for cells in ([cell.strip() for cell in line.split("|")] for line in text.splitlines())
    }
    means = [100 * np.mean(values) for values in cerberus.values()]
    assert rows["cerberus"][2] == f"{np.mean(means):.1f} ± {np.std(means, ddof=1):.1f}"
    assert rows["cerberus"][4:] == ["", "", ""]
    expected = stats.wilcoxon(single[1], cerberus[1]).pvalue
    assert rows["single"][5] == f"{expected:.2g}"
    assert rows["single"][4] == f"{100 * (np.mean(single[1]) - np.mean(cerberus[1])):+.2f}"


@pytest.mark.slow
def test_the_verb_goes_on_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs of `hard`; called again with everything there, it trains nothing and prints the same table."""
    base = save_cross_encoder("electra", tmp_path / "base")
    data, groups = jsonl(tmp_path), tmp_path / "groups.jsonl"
    recipe = ["--recipe", "tiny"]
    assert program("data sample")([*recipe, "--train", data, "--questions", "4", "--out", str(groups)]) == 0
    call = [
        *(*recipe, "--base", str(base), "--groups", f"jsonl:{groups}", "--dev", dev_jsonl(tmp_path), "--test", data),
        *("--teacher", "a", "--teacher", "b", "--only", "hard", "--steps", "2", "--out", str(tmp_path / "out")),
    ]
    assert program("train sweep cerberus")(call) == 0
    table = capsys.readouterr().out
    assert "| hard, one head | 1 |" in table
    assert "| hard | 1 |" in table
    monkeypatch.setattr("cerberank_training.commands.sweep.runs.subprocess.run", pytest.fail)
    assert program("train sweep cerberus")(call) == 0
    assert capsys.readouterr().out == table


def test_runs_are_chosen_by_the_names_of_the_table() -> None:
    """A row's name or a strategy, which may have two rows; an unknown one is refused with all names."""
    runs = plan(["a", "b", "c"], [])
    assert chosen(runs, ()) == list(runs)
    assert [run.name for run in chosen(runs, ["hard, one head", "cerberus"])] == ["hard, one head", "cerberus"]
    assert [run.name for run in chosen(runs, ["hard"])] == ["hard, one head", "hard"]
    with pytest.raises(ValueError, match="there is no run 'cerberos'; the runs are hard, one head; hard; single"):
        chosen(runs, ["cerberus", "cerberos"])
