"""`cerberank data sample`: groups of one set as the recipe draws them, and of several."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cerberank.cli import main
from tests.training.letters import questions

from cerberank_training.data import open_questions
from cerberank_training.data.sampling import ExampleOptions, sampler_for


def data(path: Path, prefix: str = "") -> str:
    path.write_text(
        "".join(
            json.dumps(
                {
                    "question": prefix + question.text,
                    "candidates": [
                        {"text": prefix + row.candidate.text, "label": row.label} for row in question.candidates
                    ],
                }
            )
            + "\n"
            for question in questions()
        )
    )
    return f"jsonl:{path}"


def call(*arguments: object) -> int:
    return main(["data", "sample", *map(str, arguments)])


def test_groups_of_one_set_are_those_that_a_run_draws(tmp_path: Path) -> None:
    """Teachers score what `distil --train` with the same seed sees."""
    spec, out = data(tmp_path / "q.jsonl"), tmp_path / "groups.jsonl.gz"
    assert call("--recipe", "mini", "--train", spec, "--questions", 7, "--seed", 3, "--out", out) == 0
    drawn = sampler_for(
        spec, open_questions(spec), ExampleOptions(negatives=2, hard_negatives=2, other_negatives=1), seed=3
    )
    written = list(open_questions(f"jsonl:{out}"))
    assert [(question.text, question.labels) for question in written] == [
        (group.question, tuple(map(int, group.labels))) for step in range(7) for group in drawn.step(step, 1)
    ]


def test_sets_are_mixed_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last lines have each set's groups and epochs, and the pairs; a set that is named twice is refused."""
    one, two, out = data(tmp_path / "1.jsonl"), data(tmp_path / "2.jsonl", "other "), tmp_path / "groups.jsonl"
    options = ["--recipe", "mini", "--train", one, "--questions", 40, "--out", out]
    assert call(*options, "--train", two, "--elsewhere", 1, "--without-positive", 0.5) == 0
    error = capsys.readouterr().err
    written = list(open_questions(f"jsonl:{out}"))
    of_two = sum(question.text.startswith("other ") for question in written)
    assert 0 < of_two < 40
    assert f"{of_two} groups of {two}, {of_two / 5:.2f} epochs" in error
    positive = sum(any(question.labels) for question in written)
    assert f"40 groups and {sum(len(question.candidates) for question in written)} pairs, {positive} positive" in error
    assert 5 < positive < 35
    assert call(*options, "--train", one) == 2
    assert "--train names a data set twice" in capsys.readouterr().err


def test_a_short_answer_is_removed_by_the_command(tmp_path: Path) -> None:
    """With --removed 1 every group of squad-as2 has its positive without the answer as a negative."""
    texts = [("It opened in 1887.", 1), ("It is made of iron.", 0)]
    row = {"qid": "1", "question": "When did it open?", "title": "t", "para": 0, "answers": ["1887"]}
    row["candidates"] = [{"text": text, "prev": "", "next": "", "label": label} for text, label in texts]
    (tmp_path / "q.jsonl").write_text(json.dumps(row) + "\n")
    options = ["--recipe", "mini", "--train", f"squad-as2:{tmp_path / 'q.jsonl'}", "--questions", 3, "--removed", 1]
    assert call(*options, "--out", tmp_path / "groups.jsonl") == 0
    for question in open_questions(f"jsonl:{tmp_path / 'groups.jsonl'}"):
        assert ("It opened in .", False) in [(each.candidate.text, each.relevant) for each in question.candidates]
