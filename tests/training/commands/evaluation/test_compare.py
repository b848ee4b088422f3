from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.program import program

compare = program("results compare")
ensemble = program("results ensemble")
evaluate = program("evaluate")


@pytest.fixture
def rank(tmp_path: Path) -> Callable[[str, float, int], Path]:
    """Per-question file of a system that sees the labels through noise, over 50 questions of a set."""

    def make(name: str, noise: float, seed: int, data: str = "dev") -> Path:
        texts, rng = random.Random(data), random.Random(seed)
        labels = [[1, 0, *(texts.randint(0, 1) for _ in range(4))] for _ in range(50)]
        questions = [
            {"question": f"{data} {i}", "candidates": [{"text": f"{k}", "label": v} for k, v in enumerate(row)]}
            for i, row in enumerate(labels)
        ]
        scores = [
            {"id": str(i), "scores": [label + rng.gauss(0, noise) for label in row]}
            for i, row in enumerate(labels, start=1)
        ]
        for path, lines in ((tmp_path / f"{data}.jsonl", questions), (tmp_path / "scores.jsonl", scores)):
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        out = tmp_path / f"{name}.{data}.jsonl"
        source = ["--data", f"jsonl:{tmp_path / f'{data}.jsonl'}", "--scores", str(tmp_path / "scores.jsonl")]
        assert evaluate([*source, "--per-question", str(out)]) == 0
        return out

    return make


def test_a_better_system_is_told_from_a_worse_one_and_from_itself(
    rank: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the usual measures, or by those that are named; against itself p is 1, Spearman 1."""
    good, bad, out = rank("good", 0.4, 1), rank("bad", 2.0, 2), tmp_path / "compare.json"
    assert compare([str(good), str(bad), "--json", str(out)]) == 0
    usual = json.loads(out.read_text())["metrics"]["map"]
    assert usual["p_value"] < 0.001
    assert "| map |" in capsys.readouterr().out
    assert compare([str(good), str(bad), "--measures", "AP R@2", "--json", str(out)]) == 0
    named = json.loads(out.read_text())["metrics"]
    assert list(named) == ["AP", "R@2"]
    assert named["AP"] == usual
    assert compare([str(good), str(good), "--json", str(out)]) == 0
    content = json.loads(out.read_text())
    assert content["metrics"]["map"]["p_value"] == content["spearman"] == 1.0


def test_files_over_other_candidates_are_refused(
    rank: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other questions, other texts under the same ids, a missing ranking: each is named; nothing is written."""
    dev, test = rank("a", 0.5, 1), rank("b", 0.5, 1, "test")
    short = tmp_path / "short.jsonl"
    short.write_text("".join(dev.read_text().splitlines(keepends=True)[:-1]))
    out = ["--json", str(tmp_path / "out.json")]
    for arguments, message in (
        ([str(dev), str(test)], "other candidates or labels for question '1'"),
        ([str(dev), str(short)], "1 are in one of them alone, such as '50'"),
        ([str(dev), str(dev), "--ranking", "exit 1"], "a.dev.jsonl:1: no ranking 'exit 1'; there are: final"),
    ):
        assert compare([*arguments, *out]) == 1
        assert message in capsys.readouterr().err
    one, other = str(dev), str(test)
    assert ensemble(["--dev", one, "--dev", one, "--test", one, "--test", other, *out]) == 1
    assert "other candidates or labels" in capsys.readouterr().err
    assert ensemble(["--dev", one, "--dev", one, "--test", one, *out]) == 1
    assert "one --dev and one --test file" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()


def test_an_ensemble_is_tuned_on_dev_and_reported_on_test(rank: Callable[..., Path], tmp_path: Path) -> None:
    """Its per-question file on test reproduces the reported figures, and can be compared with a member."""
    files = {data: [rank("a", 0.7, 1, data), rank("b", 0.9, 2, data)] for data in ("dev", "test")}
    out, lines = tmp_path / "out.json", tmp_path / "ensemble.jsonl"
    sets = [text for data, paths in files.items() for path in paths for text in (f"--{data}", str(path))]
    assert ensemble([*sets, "--trials", "30", "--json", str(out), "--per-question", str(lines)]) == 0
    systems = json.loads(out.read_text())["systems"]
    assert list(systems) == ["1. a.test", "2. b.test", "uniform", "tuned"]
    assert systems["tuned"]["dev"]["map"] == max(row["dev"]["map"] for row in systems.values())
    assert compare([str(lines), str(files["test"][0]), "--json", str(out)]) == 0
    row = json.loads(out.read_text())["metrics"]["map"]
    assert row["mean_a"] == pytest.approx(systems["tuned"]["test"]["map"])
    assert row["mean_b"] == pytest.approx(systems["1. a.test"]["test"]["map"])
