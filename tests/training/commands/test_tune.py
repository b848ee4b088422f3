from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.first_stages import without
from tests.program import program, replaced

from cerberank_models.checkpoint.first_stage_files import encoder_graph
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_training.evaluation.schedule_search import SECTION

average = program("checkpoint average")
evaluate = program("evaluate")
export = program("export")
main = program("train tune")


@pytest.fixture
def data(tmp_path: Path) -> str:
    rng = random.Random(2)
    lines = [
        {
            "question": f"how tall is {chr(97 + i)} ?",
            "candidates": [
                {"text": f"river {chr(97 + k)}", "label": int(k == 0 or rng.random() < 0.2)} for k in range(8)
            ],
        }
        for i in range(15)
    ]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"jsonl:{tmp_path / 'dev.jsonl'}"


def test_a_tuned_checkpoint_drops_by_the_chosen_schedule(tiny_checkpoint: Path, tmp_path: Path, data: str) -> None:
    """Verified, with the curve; its default is what `evaluate` measures for that schedule, and what ranking uses."""
    out, figures = tmp_path / "tuned", tmp_path / "figures.json"
    common = ["--data", data, "--precision", "fp32"]
    assert main([str(tiny_checkpoint), *common, "--max-cost", "0.8", "--out", str(out)]) == 0
    old, new = read_checkpoint(tiny_checkpoint), read_checkpoint(out)
    assert new.manifest.version == "1-tuned"
    assert {"tune.json", "tune.png"} == set(new.manifest.files) - set(old.manifest.files)
    (curve,) = json.loads((out / "tune.json").read_text())["depths"]
    default = new.config.drop_policy()
    assert curve["default"]["policy"] == asdict(default) | {"ratios": list(default.ratios)}
    assert default.lexical or any(default.ratios)
    assert len(curve["tried"]) >= 20
    assert set(curve["frontiers"]) == {"map", "ndcg@10", "p@1", "mrr"}
    assert "jsonl:dev.jsonl" in (out / "README.md").read_text()
    assert str(tmp_path) not in (out / "README.md").read_text() + (out / "tune.json").read_text()
    entry = next(
        entry
        for entry in new.config.tuned_schedules
        if (entry.schedule, entry.lexical_ratio) == (default.ratios, default.lexical)
    )
    assert entry.cost == pytest.approx(curve["default"]["cost"])
    assert entry.cost <= 0.8
    assert evaluate([*common, "--checkpoint", str(out), "--json", str(figures)]) == 0
    clean = json.loads(figures.read_text())["figures"]["clean"]
    dropped = next(row for name, row in clean.items() if name.startswith("drop "))
    assert entry.metrics["map"] == pytest.approx(dropped["mean"]["map"], abs=1e-3)
    assert entry.metrics["map_loss"] == pytest.approx(clean["final"]["mean"]["map"] - dropped["mean"]["map"], abs=2e-3)


def test_tuning_again_takes_the_place_of_the_old_schedules(
    tiny_checkpoint: Path, tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second run replaces the card's section and the curve; its minimum is kept by `evaluate`."""
    common = ["--data", data, "--precision", "fp32"]
    assert main([str(tiny_checkpoint), *common, "--max-cost", "0.9", "--out", str(tmp_path / "a")]) == 0
    search = ["--schedule", "0.5,0.5", "--minimum", "5", "--max-cost", "0.8"]
    again = ["--data", data, "--precision", "fp32", *search, "--version", "3", "--out", str(tmp_path / "b")]
    assert main([str(tmp_path / "a"), *again]) == 0
    first, second = read_checkpoint(tmp_path / "a"), read_checkpoint(tmp_path / "b")
    assert second.manifest.version == "3"
    assert (second.path / "README.md").read_text().count(f"## {SECTION}\n") == 1
    assert (
        (second.config.drop_minimum, second.config.drop_schedule) == (5, (0.5, 0.5)) != (1, first.config.drop_schedule)
    )
    capsys.readouterr()
    figures = tmp_path / "figures.json"
    checkpoint = ["--checkpoint", str(second.path), "--json", str(figures)]
    assert evaluate(["--data", data, "--precision", "fp32", *checkpoint]) == 0
    default = "drop 0.5,0.5 (at least 5)"
    assert f"`{default}` is the checkpoint's default schedule" in capsys.readouterr().out
    assert default in json.loads(figures.read_text())["figures"]["clean"]


def test_what_cannot_be_tuned_leaves_nothing(
    tiny_checkpoint: Path, tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Data that every order fits, impossible bounds, an existing folder: a message and no new folder."""
    out = tmp_path / "out"
    common = ["--data", data, "--precision", "fp32"]
    (tmp_path / "same.jsonl").write_text('{"question": "q", "candidates": [{"text": "a", "label": 1}]}\n')
    same = ["--data", f"jsonl:{tmp_path / 'same.jsonl'}", "--out", str(out)]
    for checkpoint, more, message in (
        (tiny_checkpoint, same, "so that every ranking has the same MAP"),
        (tiny_checkpoint, ["--max-loss", "0", "--max-cost", "0.1", "--out", str(out)], "schedules holds"),
        (tiny_checkpoint, ["--out", str(tiny_checkpoint)], "exists"),
    ):
        assert main(replaced([checkpoint, *common], *more)) == 1
        assert message in capsys.readouterr().err
    assert not out.exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_first_stage_is_tuned_and_kept(
    with_first_stage: Callable[[str], Checkpoint], tmp_path: Path, data: str
) -> None:
    """The first ratio is chosen with the others, evaluation agrees, `export` keeps its files, `average` refuses."""
    out, figures = tmp_path / "tuned", tmp_path / "figures.json"
    path = without(with_first_stage("tr-twin"), tmp_path / "first", encoder_graph("int8"))
    common = ["--data", data, "--precision", "fp32"]
    assert main([str(path), *common, "--max-cost", "0.6", "--out", str(out)]) == 0
    new = read_checkpoint(out)
    assert len(new.config.drop_schedule) == 3
    entry = next(
        entry
        for entry in new.config.tuned_schedules
        if (entry.schedule, entry.lexical_ratio) == (new.config.drop_schedule, new.config.lexical_ratio)
    )
    assert entry.cost <= 0.6
    assert evaluate([*common, "--checkpoint", str(out), "--json", str(figures)]) == 0
    clean = json.loads(figures.read_text())["figures"]["clean"]
    assert "first stage" in clean
    dropped = next(row for name, row in clean.items() if name.startswith("drop "))
    assert entry.metrics["map"] == pytest.approx(dropped["mean"]["map"], abs=1e-3)
    assert export([str(out), str(tmp_path / "exported"), "--forms", "none"]) == 0
    first = {name: digest for name, digest in new.manifest.files.items() if name.startswith("first-stage/")}
    exported = read_checkpoint(tmp_path / "exported").manifest.files
    assert {name: exported.get(name) for name in first} == first | {encoder_graph("fp32"): None}
    assert export([str(out), str(tmp_path / "int8"), "--forms", "int8"]) == 1
    assert average([str(out), str(out), "--out", str(tmp_path / "mean")]) == 1
    assert not (tmp_path / "int8").exists()
    assert not (tmp_path / "mean").exists()


def test_several_sets_and_depths_are_told_apart_in_card_and_curve(
    tiny_checkpoint: Path, tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """15 questions show nothing: all candidates stay, and the command says why. A set is given once."""
    other, out = tmp_path / "other" / "dev.jsonl", tmp_path / "out"
    other.parent.mkdir()
    other.write_text((tmp_path / "dev.jsonl").read_text().replace("river", "mountain"))
    sets = ["--data", data, "--data", f"jsonl:{other}"]
    common = ["--precision", "fp32", "--depths", "4,30"]
    assert main([str(tiny_checkpoint), *sets, *common, "--max-loss", "2", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "Nothing is dropped by default" in printed
    assert "A bound needs at least 100 questions" in printed
    assert "100.00" not in printed
    assert read_checkpoint(out).config.drop_schedule == (0.0, 0.0)
    # Of 8 texts that all questions share, a question has none from elsewhere: nobody has 30.
    card, (curve,) = (out / "README.md").read_text(), json.loads((out / "tune.json").read_text())["depths"]
    assert curve["candidates"] == 4
    assert len(curve["default"]["sets"]) == 2
    for name, figures in curve["default"]["sets"].items():
        assert f"| {name} | {figures['questions']} | 4.0 | 1.00 |" in card
    assert {point["bound"] for point in curve["tried"]} == {0.0, None}
    assert main([str(tiny_checkpoint), "--data", data, "--data", data, "--out", str(tmp_path / "twice")]) == 2


def test_the_exits_alone_cannot_go_with_a_lexical_share(
    tiny_checkpoint: Path, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused before anything is scored, with both options."""
    call = [str(tiny_checkpoint), "--data", data, "--exits-only", "--out", str(tmp_path / "out")]
    assert main([*call, "--schedule", "0.5:0.3,0.6"]) == 2
    assert "--exits-only cannot go with a --schedule" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
