"""`train sweep grid` on a tiny random encoder with a made-up teacher: resumed, chosen on dev."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.program import program, replaced
from tests.tiny import save_cross_encoder
from tests.training.letters import dev_jsonl, jsonl, teacher_scores

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_papers.sweep import grid, sweep_runs
from cerberank_papers.sweep.sweep_runs import CommandError
from cerberank_training.runs.record import read_record
from cerberank_training.runs.summary import dev_map

distil, sweep = program("train distil"), program("train sweep grid")


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders of the runs, each in this process to save its start; one that is named `killed` stops its run."""
    names: list[str] = []

    def run_command(verb: str, *options: object) -> None:
        out = Path(str(options[list(options).index("--out") + 1]))
        names.append(out.name)
        if (out.parent / "killed").exists() and len(names) == 2:
            raise CommandError("`cerberank train distil` ended with exit code 137")
        assert program(verb)([str(option) for option in options]) == 0

    monkeypatch.setattr(sweep_runs, "run_command", run_command)
    return names


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The options of the runs, none of which trains; each is finished at once, with a dev MAP of 70."""
    calls: list[list[str]] = []

    def run_command(verb: str, *options: object) -> None:
        calls.append([str(option) for option in options])
        (Path(calls[-1][calls[-1].index("--out") + 1]) / "checkpoint").mkdir(parents=True)

    monkeypatch.setattr(sweep_runs, "run_command", run_command)
    for module in (grid, sweep_runs):
        monkeypatch.setattr(module, "read_record", lambda folder: SimpleNamespace(results={"best": 70.0}))
    return calls


def command(folder: Path, *more: str) -> list[str]:
    if not (folder / "scores").exists():
        save_cross_encoder("bert", folder / "base")
        teacher_scores(folder / "scores")
    data = jsonl(folder)
    words = [
        *("--recipe", "tiny", "--base", str(folder / "base"), "--train", data, "--steps", "2"),
        *("--dev", dev_jsonl(folder)),
        *("--evaluate-every", "1", "--exits", ""),
        *("--teacher", str(folder / "scores"), "--out", str(folder / "out")),
    ]
    return replaced(words, *more)


def test_a_killed_grid_goes_on_and_the_best_on_dev_is_given_as_a_command(
    tmp_path: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two alphas and a rate; the second run fails once. More values can be added; the command repeats the best run."""
    options = command(tmp_path, "--alpha", "0,.5", "--tau", "3", "--learning-rate", "1e-3")
    names = ["alpha-0.0-tau-3.0-rate-0.001", "alpha-0.5-tau-3.0-rate-0.001"]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "killed").touch()
    assert sweep(options) == 1
    assert capsys.readouterr().err.endswith(
        "cerberank train sweep: `cerberank train distil` ended with exit code 137\n"
    )
    assert sweep(options) == 0
    assert ran == [*names, names[1]]
    shown = capsys.readouterr().out
    folders = {name: tmp_path / "out" / name / "checkpoint" for name in names}
    values = {name: dev_map(read_checkpoint(folder).manifest.metrics) for name, folder in folders.items()}
    rows = [line for line in shown.splitlines() if line.startswith("| 0")]
    best = max(names, key=lambda name: values[name])
    assert {row.split("|")[5].strip() for row in rows} == set(names)
    assert f"{values[best]:.2f}" in rows[0]
    (repeat,) = [line for line in shown.splitlines() if line.startswith("cerberank train distil")]
    assert distil([*shlex.split(repeat)[3:], "--forms", "none"]) == 0
    again = read_checkpoint(tmp_path / "out" / "best" / "checkpoint")
    assert dev_map(again.manifest.metrics) == values[best]
    assert (
        again.manifest.files["model.safetensors"] == read_checkpoint(folders[best]).manifest.files["model.safetensors"]
    )


def test_the_best_on_dev_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The point that was finished first is taken where two are equal."""
    figures = {"5.0": 60.0, "3.0": 70.25, "1.0": 70.25}
    for finished, tau in enumerate(figures):
        result = tmp_path / f"alpha-0.1-tau-{tau}-rate-1e-05" / "checkpoint"
        result.mkdir(parents=True)
        os.utime(result, (finished, finished))
    for module in (grid, sweep_runs):
        monkeypatch.setattr(
            module, "read_record", lambda folder: SimpleNamespace(results={"best": figures[folder.name.split("-")[3]]})
        )
    assert [point.values["tau"] for point, _ in grid.finished_points(tmp_path)] == [3.0, 1.0, 5.0]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--alpha", "0,1.5"], "for --alpha. Must be <= 1."),
        (["--tau", "0"], "for --tau. Must be > 0."),
        (["--warmup", "-1"], "for --warmup. Must be >= 0."),
    ],
)
def test_bad_values_end_a_grid_before_its_first_run(
    more: list[str], message: str, tmp_path: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of the grid and those of `distil`, by the name of the option."""
    assert sweep(command(tmp_path, *more)) == 2
    assert message in capsys.readouterr().err
    assert not ran
    assert not (tmp_path / "out").exists()


def test_labels_alone_compare_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A strategy without teachers has neither alpha nor tau: a run for each rate, not for each combination."""
    made: list[str] = []

    def run_command(verb: str, *options: object) -> None:
        made.append(Path(str(options[list(options).index("--out") + 1])).name)

    monkeypatch.setattr(sweep_runs, "run_command", run_command)
    monkeypatch.setattr(grid, "_report", lambda out, verb, training: (out / "table.md").write_text("rates"))
    words = command(tmp_path, "--learning-rate", "1e-6,1e-5")
    at = words.index("--teacher")
    assert sweep(words[:at] + words[at + 2 :]) == 0
    assert made == [f"alpha-1.0-tau-1.0-rate-{rate}" for rate in ("1e-06", "1e-05")]


def test_batch_and_warmup_belong_to_the_grid(
    tmp_path: Path, planned: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the paper's grid: each combination has a folder and its own options, and the table a column of each."""
    words = ("--alpha", "0,.1", "--tau", "1", "--examples-per-step", "8,64", "--warmup", ".025,.1")
    assert sweep(command(tmp_path, *words)) == 0
    shown = capsys.readouterr().out
    assert len(planned) == 2 * 1 * 2 * 2 * 2
    assert len({tuple(call[call.index("--alpha") :]) for call in planned}) == len(planned)
    assert planned[0][planned[0].index("--alpha") : -1] == [
        *("--alpha", "0.0", "--tau", "1.0", "--learning-rate", "1e-06"),
        *("--examples-per-step", "8", "--warmup", "0.025", "--out"),
    ]
    assert Path(planned[0][-1]).name == "alpha-0.0-tau-1.0-rate-1e-06-batch-8-warmup-0.025"
    assert "| alpha | tau | learning rate | questions or pairs a step | warm-up | dev MAP | folder |" in shown
    assert "| 0 | 1 | 1e-06 | 8 | 0.025 | 70.00 | alpha-0.0-tau-1.0-rate-1e-06-batch-8-warmup-0.025 |" in shown


def test_teachers_have_a_grid(tmp_path: Path, ran: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Table 2's rows 1 to 6: rate and batch by a teacher's preset; its best on dev; settings are bound."""
    save_cross_encoder("bert", tmp_path / "base")
    words = ["--verb", "teach", "--recipe", "cerberus/teacher-wikiqa", "--base", str(tmp_path / "base")]
    words += ["--train", jsonl(tmp_path), "--dev", dev_jsonl(tmp_path), "--steps", "2", "--evaluate-every", "1"]
    words += ["--max-length", "32", "--device", "cpu", "--out", str(tmp_path / "out")]
    assert sweep([*words, "--learning-rate", "1e-3", "--examples-per-step", "2,3"]) == 0
    assert ran == ["rate-0.001-batch-2", "rate-0.001-batch-3"]
    shown = capsys.readouterr().out
    best = {name: float(read_record(tmp_path / "out" / name).results["best"]) for name in ran}
    (row, *_) = [line for line in shown.splitlines() if line.startswith("| 0.001")]
    assert f"| {max(best.values()):.2f} |" in row
    (repeat,) = [shlex.split(line) for line in shown.splitlines() if line.startswith("cerberank train teach")]
    assert repeat[-6:-2] == ["--learning-rate", "0.001", "--examples-per-step", row.split("|")[2].strip()]
    assert sweep([*words, "--clip", "1"]) == 1
    assert "begun with training.clip 0.0, not 1.0" in capsys.readouterr().err
    assert sweep([*words, "--alpha", "0"]) == 2
    assert "--alpha is for --verb distil" in capsys.readouterr().err


def test_a_grid_is_bound_to_its_settings_and_to_the_content_of_what_it_reads(
    tmp_path: Path, planned: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Other settings, and data that were replaced under the same name, would mix two grids in one table; values of
    the grid may change.
    """
    options = command(tmp_path, "--alpha", "0", "--tau", "1", "--learning-rate", "1e-3")
    assert sweep(options) == 0
    capsys.readouterr()
    assert sweep(replaced(options, "--tau", "1,2")) == 0
    assert len(planned) == 2
    assert capsys.readouterr().out.count("\n| 0") == 2
    (tmp_path / "data.jsonl").write_text((tmp_path / "data.jsonl").read_text().replace("city", "town"))
    assert sweep([*options, "--dropout", "0.5"]) == 1
    error = capsys.readouterr().err
    assert "begun with other content of contents.train (SHA-256: data.jsonl " in error
    assert "settings.train.dropout 0.0, not 0.5" in error
    assert len(planned) == 2
