"""`cerberank evaluate` writes TREC files that ir_measures scores as the table does, and reads them back."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import ir_measures
import pytest
from tests.program import program
from tests.training.data.trec.collections import RUN, write_collection

from cerberank_training.evaluation.question_metrics import TITLES

compare = program("results compare")
main = program("evaluate")


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Twenty questions of seven candidates; two questions have no positive."""
    rng, lines = random.Random(4), list[str]()
    for number in range(20):
        labels = [0] * 7 if number in (3, 9) else [1, *(rng.randint(0, 1) for _ in range(6))]
        rows = [{"text": f"river {chr(97 + k)} {rng.random():.2f}", "label": v} for k, v in enumerate(labels)]
        lines.append(json.dumps({"question": f"how tall is {chr(97 + number)} ?", "candidates": rows}))
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    return f"jsonl:{tmp_path / 'data.jsonl'}"


def by_ir_measures(run: Path, qrels: Path, names: list[str]) -> list[float]:
    """In percent, as a program of another project reads the two files."""
    values = ir_measures.calc_aggregate(
        [ir_measures.parse_measure(name) for name in names],
        list(ir_measures.read_trec_qrels(str(qrels))),
        list(ir_measures.read_trec_run(str(run))),
    )
    return [100 * values[ir_measures.parse_measure(name)] for name in names]


@pytest.mark.parametrize(("subset", "ranking"), [("clean", "final"), ("raw", "exit 1"), ("clean", "drop 0.3,0.3")])
def test_a_checkpoints_run_scored_by_ir_measures_has_the_tables_figures(
    *, subset: str, ranking: str, tiny_checkpoint: Path, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default metrics and those that are asked for by name, of the final scores, an exit, a head and a schedule."""
    names = "AP(rel=2) RR@3 R@5 Rprec Success@1 nDCG"
    run, qrels, out = tmp_path / "run.trec", tmp_path / "qrels.trec", tmp_path / "out.json"
    common = ["--data", data, "--checkpoint", str(tiny_checkpoint), "--precision", "fp32", "--schedule", "0.3,0.3"]
    files = ["--trec-run", str(run), "--trec-qrels", str(qrels), "--ranking", ranking, "--json", str(out)]
    assert main([*common, *files, "--subset", subset, "--measures", names]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"| ranking | {' | '.join(names.split())} |")
    assert "tied" not in shown
    figures: dict[str, Any] = json.loads(out.read_text())["figures"][subset][ranking]
    assert figures["pessimistic"] == figures["optimistic"] == figures["mean"], "no ties"
    means = [figures["mean"][name] for name in (*TITLES, *names.split())]
    assert means == pytest.approx(by_ir_measures(run, qrels, [*TITLES.values(), *names.split()]))
    rows = [line.split() for line in run.read_text().splitlines()]
    assert len(rows) == figures["pairs"] == {"clean": 18, "raw": 20}[subset] * 7
    suffix = "" if ranking == "final" else f"-{ranking.replace(' ', '-')}"
    assert {row[5] for row in rows} == {tiny_checkpoint.name + suffix}


def test_a_written_run_is_read_back_with_its_ties(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tied scores: the same table from the files as from the scores, and the ties are said."""
    rng = random.Random(6)
    scores, run, qrels = (tmp_path / name for name in ("s.jsonl", "run", "qrels"))
    rows = [{"id": str(n), "scores": [rng.choice([0.1, 1 / 3]) for _ in range(7)]} for n in range(1, 21)]
    scores.write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines, again = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    files = ["--trec-run", str(run), "--trec-qrels", str(qrels), "--tag", "mine", "--per-question", str(lines)]
    assert main(["--data", data, "--scores", str(scores), *files]) == 0
    first = capsys.readouterr().out
    assert "documents are tied with one of another grade: TREC's programs order them by id" in first
    assert main(["--run", str(run), "--qrels", str(qrels), "--per-question", str(again)]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == first.splitlines()[:3]
    assert main(["--data", data, "--run", str(run), "--sample", "5"]) == 0
    content = [json.loads(line) for line in again.read_text().splitlines()]
    assert all(row["judgements"] for row in content)
    assert compare([str(again), str(again)]) == 0


def test_a_collections_own_ids_are_written(tmp_path: Path) -> None:
    """Documents have the ids of the collection, so that its own qrels judge the run too; missed ones count."""
    folder = write_collection(tmp_path)
    scores, run, qrels, out = (tmp_path / name for name in ("s.jsonl", "ours", "theirs", "out.json"))
    scores.write_text('{"id": "301", "scores": [3, 2, 1]}\n{"id": "21", "scores": [2, 1]}\n')
    files = ["--trec-run", str(run), "--trec-qrels", str(qrels), "--json", str(out)]
    assert main(["--data", f"trec:{folder}?run=run.txt&k=3", "--scores", str(scores), *files]) == 0
    assert {row.split()[2] for row in run.read_text().splitlines()} == {row.split()[2] for row in RUN.splitlines()}
    mean = list(json.loads(out.read_text())["figures"]["clean"]["final"]["mean"].values())
    for judgements in (qrels, folder / "qrels.txt"):
        assert mean == pytest.approx(by_ir_measures(run, judgements, list(TITLES.values())))
        assert main(["--run", str(run), "--qrels", str(judgements), "--json", str(out)]) == 0
        assert list(json.loads(out.read_text())["figures"]["clean"]["final"]["mean"].values()) == pytest.approx(mean)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--qrels", "q"], "--qrels are the judgements of a --run"),
        (["--run", "r"], "the questions come from --data, or from --qrels with --run: one of them is needed"),
        (["--run", "r", "--qrels", "q", "--data", "jsonl:d"], "one of them is needed"),
        (["--run", "r", "--qrels", "q", "--precision", "int8"], "it goes with no option of a checkpoint"),
        (["--run", "r", "--qrels", "q", "--agreement", "TEACHER"], "--agreement compares candidates with texts"),
        (["--data", "DATA", "--tag", "t"], "--ranking and --tag are of a --trec-run"),
        (["--data", "DATA", "--trec-run", "OUT", "--tag", "a b"], "the tag of a run is one word, not 'a b'"),
        (
            ["--data", "DATA", "--trec-run", "OUT", "--ranking", "exit 3"],
            "no ranking 'exit 3'; there are: final, exit 1",
        ),
        (["--data", "DATA", "--scores", "SCORES", "--trec-run", "OUT", "--ranking", "exit 1"], "there are: final"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    *,
    arguments: list[str],
    message: str,
    data: str,
    tiny_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line that names the option, and no file."""
    monkeypatch.setenv("CERBERANK_CHECKPOINT", str(tiny_checkpoint))
    scores, out = tmp_path / "s.jsonl", tmp_path / "out.trec"
    scores.write_text("".join(json.dumps({"id": str(n), "scores": [0.5] * 7}) + "\n" for n in range(1, 21)))
    ranked = {"final": {"metrics": {}, "ranks": [0]}}
    teacher = tmp_path / "teacher.jsonl"
    teacher.write_text(json.dumps({"id": "q", "candidates": "h", "labels": [1], "rankings": ranked}))
    places = {"DATA": data, "SCORES": str(scores), "OUT": str(out), "TEACHER": str(teacher)}
    given = [places.get(each, each) for each in arguments]
    assert main(given) == 1
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("cerberank evaluate: "), "behind the notes on the data"
    assert message in error
    assert not out.exists()
