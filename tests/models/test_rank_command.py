from __future__ import annotations

import json
from pathlib import Path

import pytest

from cerberank_models.rank_command import main


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CERBERANK_CHECKPOINT", str(tiny_checkpoint))
    return tiny_checkpoint


def test_good_lines_are_answered_and_bad_ones_named(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of four lines are bad: two answers, two messages with file and line, exit code 1."""
    lines = [
        json.dumps({"id": "q1", "question": "how tall ?", "candidates": ["a", {"text": "b", "id": "second"}]}),
        "{broken",
        json.dumps({"question": "how tall ?", "candidates": []}),
        json.dumps({"question": "who ?", "candidates": ["c"]}),
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    assert main([str(tmp_path / "in.jsonl"), "--return-heads", "--return-text", "--drop-ratio", "0.5"]) == 1
    shown = capsys.readouterr()
    answers = [json.loads(line) for line in shown.out.splitlines()]
    assert [answer.get("id") for answer in answers] == ["q1", None]
    assert {result["text"] for result in answers[0]["results"]} == {"a", "b"}
    assert {result.get("id") for result in answers[0]["results"]} == {None, "second"}
    assert "in.jsonl:2:" in shown.err
    assert "in.jsonl:3: candidates" in shown.err


def test_lines_of_text_are_ranked_for_a_question(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line a candidate in, score and text out, best first, cut to top-k."""
    (tmp_path / "in.txt").write_text("it was built\n\n330 metres\nbees make honey\n")
    assert main([str(tmp_path / "in.txt"), "--question", "how tall ?", "--top-k", "2"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 2
    assert float(rows[0].split()[0]) >= float(rows[1].split()[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--top-k", "0"], "top-k"),
        (["--drop-ratio", "0.1,0.2,0.3"], "2 drop ratios"),
        (["--precision", "fp16"], "fp16"),
        (["--checkpoint", "nowhere"], "not a checkpoint"),
        (["missing.jsonl"], "missing.jsonl"),
    ],
)
def test_wrong_options_say_what_to_change(
    checkpoint: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A message and no traceback: exit code 2 for a wrong call, 1 for what cannot be used."""
    try:
        code = main(options)
    except SystemExit as error:  # argparse's way
        code = int(str(error.code))
    assert code in (1, 2)
    assert message in capsys.readouterr().err
