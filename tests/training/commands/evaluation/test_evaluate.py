from __future__ import annotations

import json
import random
import re
import shutil
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ir_measures import AP, RR, P, Qrel, ScoredDoc, calc_aggregate, nDCG
from tests.program import program
from tests.training.data.trec.collections import QRELS, RUN, write_collection

from cerberank_training.data import read_questions
from cerberank_training.teachers.pair_keys import data_digest, pair_keys
from cerberank_training.teachers.teacher_score_cache import CacheManifest, ScoreCacheWriter, TeacherIdentity

compare = program("results compare")
ensemble = program("results ensemble")
main = program("evaluate")

MEASURES = {
    "map": AP,
    "mrr": RR,
    "p@1": P @ 1,
    "ndcg@5": nDCG @ 5,
    "ndcg@10": nDCG @ 10,
    "p@20": P @ 20,
    "ndcg@20": nDCG @ 20,
}


def write_data(path: Path, labels: list[list[int]]) -> str:
    lines = [
        {
            "question": f"how tall is {i} ?",
            "candidates": [{"text": f"river {chr(97 + i % 26)} {chr(97 + k)}", "label": v} for k, v in enumerate(row)],
        }
        for i, row in enumerate(labels)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"jsonl:{path}"


def write_scores(path: Path, scores: list[list[float]]) -> str:
    lines = [json.dumps({"id": str(i), "scores": row}) + "\n" for i, row in enumerate(scores, start=1)]
    path.write_text("".join(lines))
    return str(path)


GOOD = {"question": "q", "candidates": [{"text": "a", "label": 1}, {"text": "b", "label": 0}]}
SCORES = '{"id": "1", "scores": [0.1, 0.2]}\n{"id": "2", "scores": [0.1, 0.2]}\n'


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (SCORES.replace("0.2", "NaN"), "scores.jsonl:1: scores.1: Input should be a finite number"),
        ('{"id": "1", "scores": [0.1, 0.2]}\n{"id": "2", "sc', "scores.jsonl:2: is not JSON: "),
        ('{"id": "1", "scores": [0.1, 0.2]}\n{"id": "2", "scores": [0.1]}', "scores.jsonl:2: 1 scores for the 2"),
        ('{"id": "1", "scores": [0.1, 0.2]}\n', "scores.jsonl has no scores for question '2'"),
        ('{"id": "1", "scores": [0.1, 0.2]}\n' * 2, "scores.jsonl:2: question '1' comes twice"),
    ],
)
def test_broken_scores_are_an_error_with_file_and_line_and_nothing_is_written(
    scores: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error in a later line leaves no output, although the first question was written."""
    (tmp_path / "data.jsonl").write_text((json.dumps(GOOD) + "\n") * 2)
    (tmp_path / "scores.jsonl").write_text(scores)
    check_refused(tmp_path, message, capsys)


def check_refused(folder: Path, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = ["--json", str(folder / "o" / "f.json"), "--per-question", str(folder / "o" / "q.jsonl")]
    assert main(["--data", f"jsonl:{folder / 'data.jsonl'}", "--scores", str(folder / "scores.jsonl"), *outputs]) == 1
    assert message in capsys.readouterr().err
    assert [path for path in (folder / "o").glob("*") if path.is_file()] == []


def test_the_time_of_a_checkpoint_is_printed_and_in_no_file(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every question that a service would answer has a time; rankings that no served checkpoint made have none."""
    data, out = write_data(tmp_path / "data.jsonl", [[1, 0, 0], [0, 1], [1]]), tmp_path / "a.json"
    common = ["--data", data, "--checkpoint", str(tiny_checkpoint), "--precision", "fp32", "--json", str(out)]
    assert main(common) == 0
    line = r"^Milliseconds per 100 candidates: \d+ \(median of 3 questions of 2 candidates .*; fp32, cpu, \d+ thread"
    assert re.search(line, capsys.readouterr().out, re.MULTILINE)
    assert "illiseconds" not in out.read_text()
    scores = write_scores(tmp_path / "scores.jsonl", [[3, 2, 1], [1, 2], [1]])
    assert main(["--data", data, "--scores", scores]) == 0
    assert "Milliseconds" not in capsys.readouterr().out


def test_a_checkpoint_gets_figures_and_agreement(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures by exit, head and schedule have costs; a teacher that is head 2 agrees with head 2 completely."""
    rng = random.Random(1)
    data = write_data(tmp_path / "data.jsonl", [[1] + [rng.randint(0, 1) for _ in range(6)] for _ in range(12)])
    common = ["--data", data, "--checkpoint", str(tiny_checkpoint), "--precision", "fp32"]
    lines, teacher, out = (tmp_path / name for name in ("a.jsonl", "teacher.jsonl", "a.json"))
    assert main([*common, "--schedule", "0.3,0.3", "--per-question", str(lines)]) == 0
    records: list[dict[str, Any]] = [json.loads(line) for line in lines.read_text().splitlines()]
    assert "scores" not in records[0]["rankings"]["drop 0.3,0.3"]
    heads = ["head 1", "head 2", "head 3"]
    assert list(records[0]["rankings"]) == ["final", "exit 1", "exit 2", *heads, "drop 0.3,0.3"]
    teacher.write_text(
        "".join(json.dumps({**line, "rankings": {"final": line["rankings"]["head 2"]}}) + "\n" for line in records)
    )
    assert main([*common, "--agreement", str(teacher), "--json", str(out)]) == 0
    assert "| head 2 | teacher | 1.000 |" in capsys.readouterr().out
    content = json.loads(out.read_text())
    by_head = {row["head"]: row["agreement"] for row in content["agreement"]}
    assert list(by_head) == ["final", *heads]
    assert content["costs"]["exit 1"] == pytest.approx(1 / 3.5)
    assert content["majority"] == []
    shutil.copy(teacher, tmp_path / "second.jsonl")
    several = ["--agreement", str(teacher), "--agreement", str(tmp_path / "second.jsonl")]
    assert main([*common, *several, "--json", str(out)]) == 0
    row = next(row for row in json.loads(out.read_text())["majority"] if row["head"] == "head 2")
    right = row["all"]["questions"]  # both teachers are head 2: it is right where they are
    assert 0 < right == row["all"]["right"] < 12
    assert row["none"] == {"questions": 12 - right, "right": 0.0}
    assert f"| head 2 | {right:.1f} / {right:.1f} | 0.0 / 0.0 | 0.0 / 0.0 |" in capsys.readouterr().out


def test_texts_that_do_not_fit_are_read_in_windows_and_counted(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the service reads them; `--windows off` cuts them, and scores of a file have none."""
    rows = [{"text": "river " * 500 + "a", "label": 1}, {"text": "b", "label": 0}, {"text": "c", "label": 0}]
    (tmp_path / "data.jsonl").write_text(json.dumps({"question": "how tall ?", "candidates": rows}) + "\n")
    data = ["--data", f"jsonl:{tmp_path / 'data.jsonl'}"]
    common, out = [*data, "--checkpoint", str(tiny_checkpoint), "--precision", "fp32"], tmp_path / "a.json"
    for option, line, reading in (
        ([], "Of 3 candidates, 1 were read in windows (best).", ("best", 1, 0)),
        (["--windows", "mean"], "Of 3 candidates, 1 were read in windows (mean).", ("mean", 1, 0)),
        (["--windows", "off"], "Of 3 candidates, 1 were cut.", ("off", 0, 1)),
    ):
        assert main([*common, *option, "--json", str(out)]) == 0
        assert line in capsys.readouterr().out
        content = json.loads(out.read_text())
        assert (content["windows"], content["reading"]["in_windows"], content["reading"]["truncated"]) == reading
    scores = write_scores(tmp_path / "scores.jsonl", [[0.1, 0.2, 0.3]])
    assert main([*data, "--scores", scores, "--windows", "best"]) == 1
    assert "--windows is of a checkpoint" in capsys.readouterr().err


def test_a_teacher_of_other_candidates_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A teacher's file over other candidates is refused, because its ranks are of other texts."""
    data, scores = write_data(tmp_path / "d.jsonl", [[1, 0]]), write_scores(tmp_path / "s.jsonl", [[0.1, 0.2]])
    assert main(["--data", data, "--scores", scores, "--per-question", str(tmp_path / "t.jsonl")]) == 0
    other = (tmp_path / "d.jsonl").read_text().replace("river a b", "another")
    (tmp_path / "d.jsonl").write_text(other)
    assert main(["--data", data, "--scores", scores, "--agreement", str(tmp_path / "t.jsonl")]) == 1
    assert "teacher 't' has not scored these candidates of question '1'" in capsys.readouterr().err


def test_a_collections_grades_and_missed_documents_reach_every_file(tmp_path: Path) -> None:
    """Evaluated, joined with itself by `ensemble`, and compared: the same figures, which are trec_eval's."""
    data = f"trec:{write_collection(tmp_path)}?run=run.txt&k=3"
    scores, lines, both, out = (tmp_path / name for name in ("s.jsonl", "a.jsonl", "b.jsonl", "out.json"))
    scores.write_text('{"id": "301", "scores": [3, 2, 1]}\n{"id": "21", "scores": [2, 1]}\n')
    assert main(["--data", data, "--scores", str(scores), "--per-question", str(lines), "--json", str(out)]) == 0
    qrels = [Qrel(query, each, int(grade)) for query, _, each, grade in (row.split() for row in QRELS.splitlines())]
    run = [ScoredDoc(row.split()[0], row.split()[2], float(row.split()[4])) for row in RUN.splitlines()]
    # The run ties two documents by score; its rank decides, as the reader has it.
    run = [each._replace(score=7.6) if each.doc_id == "N-2" and each.query_id == "301" else each for each in run]
    expected = calc_aggregate(MEASURES.values(), qrels, run)
    oracle = {name: pytest.approx(100 * expected[measure]) for name, measure in MEASURES.items()}
    assert json.loads(out.read_text())["figures"]["clean"]["final"]["mean"] == oracle
    one = str(lines)
    files = ["--dev", one, "--dev", one, "--test", one, "--test", one, "--trials", "1"]
    assert ensemble([*files, "--per-question", str(both), "--json", str(out)]) == 0
    assert json.loads(out.read_text())["systems"]["uniform"]["test"] == oracle
    assert compare([str(lines), str(both), "--json", str(out)]) == 0
    means = {name: row["mean_b"] for name, row in json.loads(out.read_text())["metrics"].items()}
    assert means == oracle


@pytest.fixture
def cache(tmp_path: Path) -> tuple[str, Path, list[list[float]]]:
    """Data of 20 questions, a teacher's cache of all their pairs, and the cached differences of logits."""
    rng = random.Random(3)
    labels = [[1, 0, *(rng.randint(0, 1) for _ in range(3))] for _ in range(20)]
    logits = [[rng.choice([-20.0, -1.5, 0.25, 40.0, 41.0]) for _ in row] for row in labels]
    data = write_data(tmp_path / "data.jsonl", labels)
    questions = list(read_questions(data))
    keys = np.concatenate(
        [pair_keys(each.text, [row.candidate for row in each.candidates], context=False) for each in questions]
    )
    manifest = CacheManifest(
        teacher=TeacherIdentity(name="wise", revision="r", precision="fp32", max_length=128, context=False),
        data=(data,),
        data_sha256=data_digest(keys),
        pairs=len(keys),
        shard_pairs=len(keys),
    )
    folder = tmp_path / "electra"
    with ScoreCacheWriter(folder, manifest) as writer:
        writer.write(0, keys, np.asarray([value for row in logits for value in row], dtype=np.float32))
    return data, folder, logits


def test_a_score_cache_ranks_as_its_logits_do(
    cache: tuple[str, Path, list[list[float]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures of the same logits in a file, where probabilities of 1 would tie; the per-question file feeds others."""
    data, folder, logits = cache
    by_cache, by_file, lines = (tmp_path / name for name in ("c.json", "f.json", "c.jsonl"))
    assert main(["--data", data, "--scores", str(folder), "--json", str(by_cache), "--per-question", str(lines)]) == 0
    scores = write_scores(tmp_path / "scores.jsonl", logits)
    assert main(["--data", data, "--scores", scores, "--json", str(by_file)]) == 0
    assert json.loads(by_cache.read_text())["figures"] == json.loads(by_file.read_text())["figures"]
    written = [json.loads(line)["rankings"]["final"]["scores"] for line in lines.read_text().splitlines()]
    assert written == [pytest.approx([1 / (1 + exp(-value)) for value in row]) for row in logits]
    capsys.readouterr()
    tables = []
    for teacher in (folder, lines.rename(tmp_path / "electra.jsonl")):
        assert main(["--data", data, "--scores", scores, "--agreement", str(teacher)]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1]
    assert "| final | electra |" in tables[0]


def test_a_pair_that_a_cache_lacks_is_named(
    cache: tuple[str, Path, list[list[float]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Teacher, candidate and question; no file is written."""
    data, folder, _ = cache
    source = tmp_path / "data.jsonl"
    source.write_text(source.read_text().replace("river c b", "another"))
    out = tmp_path / "out.jsonl"
    assert main(["--data", data, "--scores", str(folder), "--per-question", str(out)]) == 1
    assert "wise never scored the candidate 'another' of the question 'how tall is 2 ?'" in capsys.readouterr().err
    assert not out.exists()


def test_depths_give_a_curve_whose_point_at_all_candidates_is_the_usual_table(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By depth and ranking with errors and costs, in the table and the JSON; other tables are refused."""
    data = write_data(tmp_path / "data.jsonl", [[1, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0]])
    common = ["--checkpoint", str(tiny_checkpoint), "--precision", "fp32", "--data", data, "--schedule", "0.5,0.5"]
    curve, whole = tmp_path / "curve.json", tmp_path / "whole.json"
    assert main([*common, "--json", str(whole)]) == 0
    capsys.readouterr()
    assert main([*common, "--depths", "6,3,12,99", "--json", str(curve)]) == 0
    printed = capsys.readouterr().out
    points = {point["candidates"]: point for point in json.loads(curve.read_text())["depths"]}
    assert list(points) == [3, 6, 12]
    assert "No question has 99 candidates" in printed
    for name, row in json.loads(whole.read_text())["figures"]["clean"].items():
        if name in ("final", "drop 0.5,0.5"):
            assert points[6]["figures"][name]["mean"]["map"] == pytest.approx(row["mean"]["map"])
            assert points[12]["figures"][name]["pairs"] == 36
            assert f"| 12 | {name} | {points[12]['figures'][name]['mean']['map']:.1f} ±" in printed
    assert points[12]["costs"] == {"final": 1.0, "drop 0.5,0.5": pytest.approx((12 + 6 + 3 * 1.5) / (12 * 3.5))}
    assert main([*common, "--depths", "6", "--per-question", str(tmp_path / "q.jsonl")]) == 2
    assert "--depths and --per-question do not go together" in capsys.readouterr().err
