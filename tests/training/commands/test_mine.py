"""The verb as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import CrossEncoder
from tests.program import program, replaced
from tests.tiny import WORDS, save_cross_encoder
from tests.training.data.mining.test_search import sentence_encoder

from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_training.commands import mine as command
from cerberank_training.data import read_questions
from cerberank_training.data.mining.miner import Miner

main, score = program("data mine"), program("data score")

TEXTS = [" ".join(WORDS[start : start + 5]) for start in range(30)]


def data(folder: Path) -> str:
    """Forty questions, each with one or two positives of the corpus; one has none."""
    lines: list[dict[str, Any]] = []
    for number in range(40):
        rows = [
            {"text": TEXTS[number % 25], "label": 2, "next": "a sentence"},
            {"text": TEXTS[number % 25 + 3], "label": int(number % 2)},
        ]
        lines.append({"id": number, "question": " ".join(WORDS[number % 25 : number % 25 + 3]), "candidates": rows})
    lines.append({"id": "none", "question": "river", "candidates": [{"text": "river", "label": 0}]})
    (folder / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "docs.jsonl").write_text(
        "".join(json.dumps({"id": str(i), "text": t}) + "\n" for i, t in enumerate(TEXTS))
    )
    return f"jsonl:{folder / 'data.jsonl'}"


def arguments(folder: Path, *more: str, out: str = "mined.jsonl") -> list[str]:
    corpus = f"documents:{folder / 'docs.jsonl'}"
    return replaced(["--data", data(folder), "--corpus", corpus, "--out", folder / out], *more)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_bm25_finds_negatives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Texts that share words and are not relevant; positives keep their grades; what is left out is counted."""
    assert main(arguments(tmp_path, "--negatives", "3")) == 0
    printed = capsys.readouterr().err
    assert "34 questions with 94 negatives" in printed  # six ask for words that BM25 leaves out
    assert "left out: 1 questions without a positive, 6 without a negative" in printed
    mined = list(read_questions(f"jsonl:{tmp_path / 'mined.jsonl'}"))
    sources = {source.id: source for source in read_questions(data(tmp_path))}
    for question in mined:
        relevant = [row for row in sources[question.id].candidates if row.relevant]
        assert question.candidates[: len(relevant)] == tuple(relevant)
        negatives = [row.candidate.text for row in question.candidates[len(relevant) :]]
        assert 1 <= len(negatives) <= 3
        assert not {row.candidate.text for row in relevant} & set(negatives)
        assert all(set(question.text.split()) & set(text.split()) for text in negatives)
    assert not (tmp_path / "mined.jsonl.work").exists()


def test_a_cross_encoder_filters_and_orders(tmp_path: Path) -> None:
    """By the library's own scores: none above 95 % of the lowest positive's, the highest first; a cache takes them."""
    model = save_cross_encoder("bert", tmp_path / "cross", num_labels=1)
    TeacherInput(max_length=64).write(tmp_path / "cross")  # a tiny network has 64 positions
    margin = ["--filter", str(model), "--relative-margin", "0.05", "--negatives", "4"]
    assert main(arguments(tmp_path, *margin)) == 0
    judge = CrossEncoder(str(model), device="cpu", max_length=48)
    tight = 0
    for line in lines(tmp_path / "mined.jsonl"):
        rows = line["candidates"]
        likely = judge.predict([(line["question"], row["text"]) for row in rows])
        assert 1 / (1 + np.exp(-np.asarray([row["score"] for row in rows]))) == pytest.approx(likely, abs=1e-4)
        positives = [p for p, row in zip(likely, rows, strict=True) if row["label"]]
        negatives = [p for p, row in zip(likely, rows, strict=True) if not row["label"]]
        assert max(negatives) <= 0.95 * min(positives) + 1e-5
        assert negatives == sorted(negatives, reverse=True)
        others = judge.predict([(line["question"], text) for text in TEXTS])
        tight += bool((others > 0.95 * min(positives)).any())
    assert tight
    spec = f"jsonl:{tmp_path / 'mined.jsonl'}"
    assert score([str(tmp_path / "cache"), "--own-scores", "--as", "logit", "--name", "cross", "--data", spec]) == 0


def test_a_bi_encoder_finds_negatives_and_keeps_its_vectors(tmp_path: Path) -> None:
    """A second run with other settings computes no vector again; its draw is the same each time."""
    model, vectors = str(sentence_encoder(tmp_path)), str(tmp_path / "vectors")
    assert (
        main(arguments(tmp_path, "--by", model, "--candidate-length", "40", "--vectors", vectors, "--negatives", "2"))
        == 0
    )
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "vectors").iterdir()}
    drawn = [
        "--by",
        model,
        "--candidate-length",
        "40",
        "--vectors",
        vectors,
        "--choose",
        "random",
        "--skip",
        "2",
        "--top",
        "12",
    ]
    for out in ("a.jsonl", "b.jsonl"):
        assert main(arguments(tmp_path, *drawn, out=out)) == 0
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "vectors").iterdir()} == before
    assert [len(line["candidates"]) for line in lines(tmp_path / "mined.jsonl")] == [3, 4] * 20


def test_copies_of_a_positive_are_no_negatives(tmp_path: Path) -> None:
    """Also those that differ from it in case and blanks."""
    texts = ["The  Rhine is a long river", "the rhine IS a long river ", "The Nile is a long river", "cold lake", "sea"]
    rows = [{"text": text, "label": int(number == 0)} for number, text in enumerate(texts)]
    (tmp_path / "d.jsonl").write_text(json.dumps({"question": "long river rhine", "candidates": rows}))
    assert main(["--data", f"jsonl:{tmp_path / 'd.jsonl'}", "--out", str(tmp_path / "o.jsonl")]) == 0
    (line,) = lines(tmp_path / "o.jsonl")
    assert [row["text"] for row in line["candidates"]] == [texts[0], texts[2]]


def test_a_killed_run_goes_on_to_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a torn line; and with other settings or data it is refused by the field's name."""
    monkeypatch.setattr(command, "CHUNK", 8)
    assert main(arguments(tmp_path, out="whole.jsonl")) == 0
    mined, calls = Miner.mined, 0

    def killed(self: Miner, questions: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError("killed")
        return mined(self, questions)

    monkeypatch.setattr(Miner, "mined", killed)
    assert main(arguments(tmp_path)) == 1
    assert "mined.jsonl.work is kept, and the same command resumes from it" in capsys.readouterr().err
    with (tmp_path / "mined.jsonl.work" / "lines.jsonl").open("a") as file:
        file.write('{"line": nu')
    assert not (tmp_path / "mined.jsonl").exists()
    assert main(arguments(tmp_path, "--negatives", "3")) == 1
    assert main(arguments(tmp_path)) == 0
    assert calls == 3 + 3
    assert (tmp_path / "mined.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--top", "5", "--skip", "5"], "--top above --skip"),
        (["--relative-margin", "0.99"], "no question has a negative that the settings let through"),
        (["--filter", "EMPTY"], "empty"),
        (["--by", "EMPTY"], "empty"),
        (["--corpus", "documents:nowhere"], "nowhere"),
        (["--data", "csv:nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_mined_is_refused(
    more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, and nothing is written."""
    (tmp_path / "empty").mkdir()
    assert main(arguments(tmp_path, *(part.replace("EMPTY", str(tmp_path / "empty")) for part in more))) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("cerberank data mine: ")
    assert message in last
    assert not list(tmp_path.glob("mined.jsonl*"))


def test_a_run_is_no_source_of_positives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Relevant documents that a run has missed would become negatives; a file that exists is kept."""
    (tmp_path / "b" / "qrels").mkdir(parents=True)
    (tmp_path / "b" / "corpus.jsonl").write_text('{"_id": "1", "text": "river"}\n{"_id": "2", "text": "deep river"}\n')
    (tmp_path / "b" / "queries.jsonl").write_text('{"_id": "q", "text": "river"}\n')
    (tmp_path / "b" / "qrels" / "test.tsv").write_text("q\t1\t1\nq\t2\t1\n")
    spec = f"beir:{tmp_path / 'b'}?run=bm25&k=1"
    assert main(["--data", spec, "--out", str(tmp_path / "o.jsonl")]) == 1
    assert "leave run= out" in capsys.readouterr().err
    (tmp_path / "o.jsonl").write_text("kept")
    assert main(["--data", spec, "--out", str(tmp_path / "o.jsonl")]) == 1
    assert "o.jsonl exists" in capsys.readouterr().err
