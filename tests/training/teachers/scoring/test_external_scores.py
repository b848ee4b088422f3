"""Scores that someone else gave become a cache that students can learn from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.program import program
from tests.tiny import save_cross_encoder

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.encoding import Candidate
from cerberank_training.teachers.scoring.external_scores import platt_scaling
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache

distil = program("train distil")
main = program("data score")

SCORES = {"a": 0.9, "b": 0.2, "c": 0.5}
LINES = [{"question": "q", "text": text, "score": score, "judge": "x"} for text, score in SCORES.items()]


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def data(folder: Path, scores: dict[str, float] | None = None) -> str:
    """One question, whose first candidate is relevant; perhaps with scores of its own."""
    rows: list[dict[str, Any]] = [{"text": text, "label": int(text == "a")} for text in SCORES]
    for row in rows if scores else []:
        row["score"] = scores[row["text"]]
    return f"jsonl:{write(folder / 'data.jsonl', [{'question': 'q', 'candidates': rows}])}"


def cached(folder: Path, *more: str) -> list[float]:
    assert main([str(folder / "cache"), "--name", "judge 1", *more]) == 0
    cache = TeacherScoreCache.open(folder / "cache")
    return cache.scores("q", [Candidate(text=text, next="context is not part of the key") for text in SCORES]).tolist()


@pytest.mark.parametrize(
    ("form", "expected"),
    [("logit", [0.9, 0.2, 0.5]), ("probability", [np.log(9), -np.log(4), 0.0])],
)
def test_a_file_of_scores_becomes_log_odds(form: str, expected: list[float], tmp_path: Path) -> None:
    """As they are, or from probabilities; a pair that comes twice with one score is as good."""
    scores = write(tmp_path / "s.jsonl", [*LINES, {**LINES[0], "score": 0.90001}, {**LINES[0], "text": "elsewhere"}])
    got = cached(tmp_path, "--scores", str(scores), "--as", form, "--data", data(tmp_path))
    assert got == pytest.approx(expected)
    manifest = TeacherScoreCache.open(tmp_path / "cache").manifest
    assert (manifest.teacher.name, manifest.teacher.precision) == ("judge 1", f"given/{form}")


def test_certain_probabilities_are_bounded(tmp_path: Path) -> None:
    """0 and 1 have no finite log-odds; the data's own scores are as good as a file's."""
    spec = data(tmp_path, {"a": 1.0, "b": 0.0, "c": 0.5})
    assert cached(tmp_path, "--own-scores", "--as", "probability", "--data", spec) == pytest.approx(
        [9.21, -9.21, 0], abs=0.01
    )


def test_a_scale_is_learnt_from_labels() -> None:
    """Labels drawn with known log-odds of a score from 0 to 10 give these back; separable ones stay finite."""
    rng = np.random.default_rng(0)
    scores = rng.uniform(0, 10, 40_000)
    relevant = rng.random(40_000) < 1 / (1 + np.exp(-(1.5 * scores - 9)))
    assert platt_scaling(scores, relevant) == pytest.approx((1.5, -9), rel=0.05)
    slope, offset = platt_scaling(scores, scores > 6)
    assert np.isfinite([slope, offset]).all()
    assert slope * 6 + offset == pytest.approx(0, abs=0.5)


def test_the_cache_belongs_to_its_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same scores in another order are the same teacher; another score or another form is not."""
    spec, scores = data(tmp_path), tmp_path / "s.jsonl"
    arguments = [str(tmp_path / "cache"), "--name", "judge", "--scores", str(scores), "--data", spec, "--as"]
    write(scores, LINES)
    assert main([*arguments, "logit"]) == 0
    write(scores, LINES[::-1])
    assert main([*arguments, "logit"]) == 0
    assert main([*arguments, "probability"]) == 1
    write(scores, [{**LINES[0], "score": 0.91}, *LINES[1:]])
    assert main([*arguments, "logit"]) == 1
    refusals = [line.partition(" was begun with ")[2] for line in capsys.readouterr().err.splitlines()]
    names = [refusal.split(" ", 1)[0] for refusal in refusals if refusal]
    assert names == ["teacher.precision", "teacher.revision"]


@pytest.mark.parametrize(
    ("lines", "more", "message"),
    [
        (LINES[:1], ["--as", "logit"], "2 of 3 pairs have no score, such as the candidate 'b' of the question 'q'"),
        ([], ["--as", "logit"], "3 of 3 pairs have no score"),
        (
            [*LINES, {**LINES[0], "score": 0.8}],
            ["--as", "logit"],
            "s.jsonl:4: the pair has the score 0.8, and 0.9 in ",
        ),
        ([{**LINES[0], "score": float("nan")}], ["--as", "logit"], "s.jsonl:1: score: Input should be a finite number"),
        ([{**LINES[0], "score": 7}, *LINES[1:]], ["--as", "probability"], "scores are from 0.2 to 7"),
        ([{**line, "score": 4} for line in LINES], ["--as", "score"], "all scores are 4"),
        ([{**LINES[0], "score": -1}, *LINES[1:]], ["--as", "score"], "irrelevant texts have the higher scores"),
        (LINES, [], "need --as"),
        (LINES, ["--as", "logit", "--device", "cuda"], "--device is for --teacher"),
    ],
)
def test_what_cannot_be_a_teacher_is_refused(
    lines: list[Any], more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, and no cache is begun."""
    scores = write(tmp_path / "s.jsonl", lines)
    arguments = ["--name", "judge", "--scores", str(scores), "--data", data(tmp_path), *more]
    code, error = main([str(tmp_path / "cache"), *arguments]), capsys.readouterr().err
    assert code == (2 if "--help" in error else 1)
    assert message in error
    assert not (tmp_path / "cache").exists()


def test_own_scores_must_be_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The candidate without one is named; and options of given scores are none of a model's."""
    assert main([str(tmp_path / "c"), "--name", "j", "--own-scores", "--as", "logit", "--data", data(tmp_path)]) == 1
    assert "question '1': the candidate 'a' has no score" in capsys.readouterr().err
    assert main([str(tmp_path / "c"), "--name", "j", "--teacher", "t", "--data", data(tmp_path)]) == 2
    assert "--name is for --scores and --own-scores" in capsys.readouterr().err


def test_a_student_learns_from_given_scores(tmp_path: Path) -> None:
    """Labels have no weight: by margin-MSE the student ranks as the judge does, from a CSV file to a checkpoint."""
    rows = [(letter, other, int(letter == other), float(letter == other)) for letter in "abcde" for other in "abcde"]
    table = "".join(f"{letter},{other},{label},{score}\n" for letter, other, label, score in rows)
    (tmp_path / "d.csv").write_text(f"question,text,label,score\n{table}")
    spec, dev = f"csv:{tmp_path / 'd.csv'}", f"csv:{tmp_path / 'dev.csv'}"
    backwards = "".join(reversed(table.splitlines(keepends=True)))
    (tmp_path / "dev.csv").write_text(f"question,text,label,score\n{backwards}")
    given = ["--own-scores", "--as", "probability", "--name", "judge", "--data", spec]
    assert main([str(tmp_path / "cache"), *given]) == 0
    base = save_cross_encoder("bert", tmp_path / "base")
    options = [
        *("--recipe", "tiny", "--base", str(base), "--train", spec, "--dev", dev, "--exits", "", "--heads", "1"),
        *("--alpha", "0", "--teacher-loss", "margin-mse", "--teacher", str(tmp_path / "cache")),
        *(
            "--negatives",
            "4",
            "--hard-negatives",
            "0",
            "--other-negatives",
            "0",
            "--examples-per-step",
            "5",
            "--steps",
            "60",
        ),
        *("--learning-rate", "5e-3", "--evaluate-every", "20", "--forms", "none", "--out", str(tmp_path / "run")),
    ]
    assert distil(options) == 0
    (dev_map,) = read_checkpoint(tmp_path / "run" / "checkpoint").manifest.metrics.values()
    assert dev_map > 90
