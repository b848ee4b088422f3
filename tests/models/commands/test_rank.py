from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.calibrations import calibrated
from tests.program import program

main = program("rank")


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CERBERANK_CHECKPOINT", str(tiny_checkpoint))
    return tiny_checkpoint


def test_good_lines_are_answered_and_bad_ones_named(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three of six lines are bad: three answers, three messages with file and line, exit code 1."""
    lines = [
        json.dumps({"id": "q1", "question": "how tall ?", "candidates": ["a", {"text": "b", "id": "second"}]}),
        "{broken",
        json.dumps({"question": "how tall ?", "candidates": []}),
        '{"question": "who ?", "candidates": ["caf\u00e9"]}',
        "",
        json.dumps({"question": "who ?", "candidates": ["c"]}),
        json.dumps({"question": "how tall ?", "candidates": ["a"], "min_precison": 0.5}),
    ]
    (tmp_path / "in.jsonl").write_bytes("\r\n".join(lines).encode("latin-1") + b"\n")
    assert main([str(tmp_path / "in.jsonl"), "--return-heads", "--return-text", "--drop-ratio", "0.5"]) == 1
    shown = capsys.readouterr()
    answers = [json.loads(line) for line in shown.out.splitlines()]
    assert [answer.get("id") for answer in answers] == ["q1", None, None]
    assert answers[1]["results"] == []
    assert {result["text"] for result in answers[0]["results"]} == {"a", "b"}
    assert {result.get("id") for result in answers[0]["results"]} == {None, "second"}
    assert "in.jsonl:2:" in shown.err
    assert "in.jsonl:7: min_precison: is not a field of this request; is min_precision meant?" in shown.err
    assert "in.jsonl:4: is not UTF-8" in shown.err
    assert len(shown.err.splitlines()) == 3


def test_standard_input_is_answered_line_by_line(checkpoint: Path) -> None:
    """The first answer comes while the input is still open, whatever the locale; a closed reader ends it quietly."""
    command = [sys.executable, "-m", "cerberank", "rank", "--return-text"]
    environment = {"CERBERANK_CHECKPOINT": str(checkpoint), "PYTHONIOENCODING": "ascii"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        line = json.dumps({"question": "who ?", "candidates": ["caf\u00e9"]}).encode() + b"\n"
        process.stdin.write(line)
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["results"][0]["text"] == "caf\u00e9"
        process.stdout.close()
        process.stdin.write(line * 3)
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_lines_of_text_are_ranked_for_a_question(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line a candidate in, score and text out, best first, cut to top-k."""
    (tmp_path / "in.txt").write_text("it was built\n\n330 metres\nbees make honey\n")
    assert main([str(tmp_path / "in.txt"), "--question", "how tall ?", "--top-k", "2"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 2
    assert float(rows[0].split()[0]) >= float(rows[1].split()[0])
    assert main([str(tmp_path / "in.txt"), "--question", "bees ?", "--lexical-ratio", "0.7", "--drop-ratio", "0"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[1] for row in rows] == ["bees", "it", "330"]
    assert [row.split()[0] == "dropped" for row in rows] == [False, True, True]
    assert main([str(tmp_path / "in.txt"), "--question", "bees ?", "--drop-ratio", "0.6,0"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert ["(stage 0)" in row for row in rows] == [False, True, True]


def test_a_question_is_answered_with_answerable_and_warnings_beside_the_table(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error, so that the table can be piped."""
    folder = calibrated(tiny_checkpoint, tmp_path / "calibrated").path
    (tmp_path / "in.txt").write_text("it was built\n\u0e01\u0e02 \u0e04\u0e07\n")
    assert main([str(tmp_path / "in.txt"), "--question", "how tall ?", "--model", str(folder)]) == 0
    shown = capsys.readouterr()
    answerable, warning = shown.err.splitlines()
    best = float(shown.out.split()[0])
    assert best <= float(answerable.removeprefix("answerable: ")) <= 1.0
    assert "lacks most tokens of 1 candidate" in warning
    assert main([str(tmp_path / "in.txt"), "--question", "how tall ?", "--model", str(folder), "--min-score", "1"]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err.splitlines()[-1]) == ("", "no candidate reaches the threshold")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--drop-ratio", "0.1,0.2,0.3"], "2 drop ratios"),
        (["--precision", "fp16"], "fp16"),
        (["--model", "no where"], "no where: there is no such folder"),
        (["--question", "who ?", "--min-precision", "0.5"], "min_precision: this model is not calibrated"),
        (["--question", "who ?", "--instruction", "rank"], "instruction: random-tiny has no prompt"),
        (["--question", "who ?", "--url", "http://127.0.0.1:9/v9"], "http://127.0.0.1:9/v9/ gave no answer"),
        (["missing.jsonl"], "missing.jsonl"),
        (["--question", " "], "question: must not be blank"),
        (["--question", "\u200b"], "question: must not be blank"),
    ],
)
def test_wrong_options_say_what_to_change(
    checkpoint: Path,
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Exit code 1 and one line, no traceback."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n")))
    assert main(options) == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


def test_options_of_the_command_are_those_of_lines_without_their_own(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [{"question": "who ?", "candidates": ["a", "b"]}, {"query": "who ?", "documents": ["a", "b"], "top_n": 2}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main([str(tmp_path / "in.jsonl"), "--top-k", "1", "--deadline-ms", "0.000001"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(len(answer["results"]), answer["complete"]) for answer in answers] == [(1, False), (2, False)]


@pytest.mark.parametrize(
    ("options", "message"),
    [(["FOLDER"], "name a model by --model"), (["--url", "http://127.0.0.1:9", "--threads", "2"], "which has its own")],
)
def test_a_folder_is_no_input_and_a_service_has_its_own_backend(
    tmp_path: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path) if word == "FOLDER" else word for word in options]) == 2
    assert message in capsys.readouterr().err


def test_a_question_needs_a_candidate(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blank lines are not candidates, and without a candidate there is an error."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n \n")))
    assert main(["--question", "who ?"]) == 1
    assert "give one a line" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [["--top-k", "0"], ["--threads", "-1"], ["--drop-ratio", "x"], ["--drop-ratio", "nan"], ["--drop-ratio", "1"]],
)
def test_a_wrong_value_is_a_wrong_call(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and a message with the option and the values that it takes."""
    assert main(options) == 2
    shown = capsys.readouterr().err
    assert options[0] in shown
    assert "at least" in shown or ">= 1" in shown
