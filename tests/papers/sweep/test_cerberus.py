"""`train sweep cerberus`: its rows, their settings by their own grids, their evaluation, and how it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.program import program
from tests.tiny import save_cross_encoder
from tests.training.evaluation.systems.systems import write_system
from tests.training.letters import dev_jsonl, jsonl

from cerberank_papers.sweep import cerberus, sweep_runs
from cerberank_papers.sweep.cerberus import chosen, plan
from cerberank_papers.sweep.grid import Point
from cerberank_training.learning.strategies import strategy_of

sweep = program("train sweep cerberus")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that a sweep would run, and its evaluations; every grid chooses the same point."""
    made: list[list[str]] = []
    best = Point(alpha=0.5, tau=3.0, learning_rate=1e-6, examples_per_step=16)

    def run_command(verb: str, *words: object) -> None:
        made.append([verb, *map(str, words)])
        if verb == "evaluate":
            write_system(Path(made[-1][-1]).parent, 1.0, {Path(made[-1][-1]).stem: 5})

    for module in (cerberus, sweep_runs):
        monkeypatch.setattr(module, "run_command", run_command)
    monkeypatch.setattr(cerberus, "finished_points", lambda folder: [(best, 71.5)] if "grid-cer" in folder.name else [])
    return made


def words(folder: Path, *more: str) -> list[str]:
    save_cross_encoder("electra", folder / "base")
    data = jsonl(folder)
    given = ["--recipe", "cerberus/wikiqa", "--base", str(folder / "base"), "--train", data, "--dev", dev_jsonl(folder)]
    teachers = [part for name in "abc" for part in ("--teacher", name)]
    return [*given, *teachers, "--test", data, "--rows", "cerberus", "--out", str(folder / "out"), *more]


def value(call: list[str], option: str) -> str:
    return call[call.index(option) + 1]


def test_a_grid_chooses_a_rows_settings(
    tmp_path: Path, calls: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """It chooses from the values that are given, and the recipe's where none are; the table names the choice."""
    given = ("--alpha", "0,.5", "--examples-per-step", "8,16", "--warmup", "0.1", "--dev-questions", "3")
    assert sweep(words(tmp_path, *given)) == 0
    grid, distil, _ = calls
    assert grid[0] == "train sweep grid"
    lists = ("--alpha", "--tau", "--learning-rate", "--examples-per-step")
    assert [value(grid, option) for option in (*lists, "--warmup")] == ["0.0,0.5", "3.0", "1e-05", "8,16", "0.1"]
    assert [value(distil, option) for option in lists] == ["0.5", "3.0", "1e-06", "16"]
    assert {value(call, "--dev-questions") for call in (grid, distil)} == {"3"}
    assert value(grid, "--out") == str(tmp_path / "out" / "grid-cerberus")
    assert (
        "- cerberus: alpha 0.5, tau 3, learning rate 1e-06, questions or pairs a step 16, dev MAP 71.50"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_runs_are_evaluated_where_they_were_trained(
    device: str, tmp_path: Path, calls: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A processor reads an ONNX form, a GPU the weights alone; without lists there is no grid."""
    monkeypatch.setattr(cerberus, "check_device", lambda device: None)
    assert sweep(words(tmp_path, "--device", device)) == 0
    distil, evaluate = calls
    assert ("none" in distil) == (device == "cuda")
    assert "--alpha" not in distil
    assert (value(distil, "--device"), value(evaluate, "--device")) == (device, device)


def test_single_values_need_no_grid(tmp_path: Path, calls: list[list[str]]) -> None:
    """They are the row's."""
    assert sweep(words(tmp_path, "--alpha", "0.1", "--examples-per-step", "8", "--windows", "mean")) == 0
    assert [call[0] for call in calls] == ["train distil", "evaluate"]
    assert (value(calls[0], "--alpha"), value(calls[0], "--examples-per-step")) == ("0.1", "8")
    assert value(calls[0], "--windows") == "mean"
    assert "--tau" not in calls[0]


def test_shapes_are_rows(tmp_path: Path, calls: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    """Table 4: the same strategy with bodies of several depths, all compared with the first."""
    assert sweep(words(tmp_path, "--body-layers", "11,10")) == 0
    assert [value(call, "--body-layers") for call in calls if call[0] == "train distil"] == ["11", "10"]
    shown = capsys.readouterr().out
    assert "| cerberus-b10 |" in shown
    assert "differs from cerberus-b11" in shown


def test_groups_or_single_pairs(tmp_path: Path, calls: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    """One of both is needed."""
    assert sweep(words(tmp_path, "--groups", jsonl(tmp_path))) == 2
    assert "Give --train or --groups." in capsys.readouterr().err
    assert not calls


def test_every_planned_run_fits_its_strategy() -> None:
    """With three teachers of different kinds, and three of one kind for hydra."""
    for run in plan(["a", "b", "c"], ["d", "e", "f"]):
        strategy = strategy_of(run.strategy, heads=run.heads, teachers=len(run.teachers))
        assert strategy == {"hard-one-head": "hard", "hydra": "cerberus"}.get(run.name, run.name)


def test_runs_are_chosen_by_the_names_of_the_table() -> None:
    """An unknown one is refused with all names."""
    planned = plan(["a", "b", "c"], [])
    assert chosen(planned, ()) == list(planned)
    assert [run.name for run in chosen(planned, ["hard-one-head", "cerberus"])] == ["hard-one-head", "cerberus"]
    with pytest.raises(ValueError, match="there is no run 'cerberos'; the runs are hard-one-head; hard; single"):
        chosen(planned, ["cerberus", "cerberos"])


def test_the_verb_goes_on_where_it_stopped(tmp_path: Path, ran: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs of `hard`; called again with everything there, it trains nothing and prints the same table."""
    base = save_cross_encoder("electra", tmp_path / "base")
    data, groups = jsonl(tmp_path), tmp_path / "groups.jsonl"
    recipe = ["--recipe", "tiny"]
    assert program("data sample")([*recipe, "--train", data, "--questions", "4", "--out", str(groups)]) == 0
    call = [
        *(*recipe, "--base", str(base), "--groups", f"jsonl:{groups}", "--dev", dev_jsonl(tmp_path), "--test", data),
        *("--teacher", "a", "--teacher", "b", "--rows", "hard-one-head,hard"),
        *("--steps", "2", "--out", str(tmp_path / "out")),
    ]
    assert sweep(call) == 0
    assert ran == ["distil", "evaluate"] * 2
    shown = capsys.readouterr().out
    table = (tmp_path / "out" / "table.md").read_text()
    rows = [line.split(" | ")[0] for line in table.splitlines()]
    assert [rows.count(row) for row in ("| hard-one-head", "| hard", "| P@1", "| AP", "| RR")] == [3, 3, 1, 1, 1]
    assert sweep(call) == 0
    assert ran == ["distil", "evaluate"] * 2
    assert shown.endswith(capsys.readouterr().out)
