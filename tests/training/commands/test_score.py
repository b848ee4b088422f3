"""The verb as a user runs it, in separate processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.bounds import LOGITS
from tests.program import program
from tests.tiny import WORDS, save_cross_encoder

from cerberank_models.encoding import Candidate
from cerberank_training.data import read_questions
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache

main = program("data score")

QUESTIONS = 40
SINGLE = os.environ | {"OMP_NUM_THREADS": "1"}
"""Threads of many small processes would wait for each other."""


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_cross_encoder("bert", tmp_path_factory.mktemp("teacher") / "bert")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions with ten candidates of several lengths."""
    path = tmp_path_factory.mktemp("data") / "data.jsonl"
    words = WORDS[:30]
    lines = [
        {
            "question": f"{words[index % 30]} {words[index // 30]} ?",
            "candidates": [
                {"text": " ".join(words[(index + other) % 30 : (index + other) % 30 + other]), "label": 0}
                for other in range(10)
            ],
        }
        for index in range(QUESTIONS)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def command(out: Path, teacher: Path, data: Path, *more: str) -> list[str]:
    return [str(out), "--teacher", str(teacher), "--data", f"jsonl:{data}", "--max-length", "32", *more]


def content(folder: Path) -> dict[str, bytes]:
    """Every shard's bytes."""
    return {path.name: path.read_bytes() for path in folder.glob("shard-*.parquet")}


@pytest.mark.slow
def test_a_cluster_gives_the_same_cache(teacher: Path, data: Path, tmp_path: Path) -> None:
    """Two workers of a local cluster against one process; a worker that fails is one clear line and no shard."""
    pytest.importorskip("ray", reason="needs the extra ray", exc_type=ImportError)
    broken = save_cross_encoder("bert", tmp_path / "broken", num_labels=3)
    ray = ["--shard-pairs", "100", "--engine", "ray", "--copies", "2"]
    calls = [command(tmp_path / "ray", teacher, data, *ray), command(tmp_path / "failed", broken, data, *ray)]
    script = f"from cerberank.cli import main; print([main(['data', 'score', *call]) for call in {calls}])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=SINGLE)
    # Ray repeats what its workers print, before or after our line.
    assert [line for line in done.stdout.splitlines() if line.startswith("[")] == ["[0, 1]"], done.stderr
    assert "cerberank data score: a Ray worker failed: " in done.stderr.splitlines()[-1]
    assert "3 labels; a teacher has one or two" in done.stderr.splitlines()[-1]
    assert content(tmp_path / "failed") == {}
    assert main(command(tmp_path / "local", teacher, data, "--shard-pairs", "100")) == 0
    first, second = TeacherScoreCache.open(tmp_path / "ray"), TeacherScoreCache.open(tmp_path / "local")
    assert first.manifest == second.manifest
    for question in read_questions(f"jsonl:{data}"):
        candidates = [row.candidate for row in question.candidates]
        difference = first.scores(question.text, candidates) - second.scores(question.text, candidates)
        assert np.abs(difference).max() <= LOGITS  # a worker may use another number of threads


def test_machines_without_a_cluster_share_the_work(
    teacher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each call says what it lacks; joined, nothing is scored again. Wrong shares are refused, as are those of given
    scores.
    """
    data = tmp_path / "data.jsonl"
    rows = [{"text": word, "label": 0} for word in WORDS[:5]]
    data.write_text(json.dumps({"question": "what ?", "candidates": rows}) + "\n")
    for number in (1, 2):
        asked = command(tmp_path / str(number), teacher, data, "--shard-pairs", "2", "--shard", f"{number}/2")
        assert main(asked) == 0
        assert f"lacks {number} shards, which other calls score" in capsys.readouterr().err
    parts = [word for number in (1, 2) for word in ("--parts", str(tmp_path / str(number)))]
    assert main(command(tmp_path / "all", teacher, data, "--shard-pairs", "2", *parts)) == 0
    assert "has 5 scores by" in capsys.readouterr().err
    assert content(tmp_path / "all") == content(tmp_path / "1") | content(tmp_path / "2")
    for wrong in ("0/2", "3/2", "2", "a/b"):
        assert main(command(tmp_path / "all", teacher, data, "--shard", wrong)) == 2
    given = ["--own-scores", "--as", "score", "--name", "n", "--data", f"jsonl:{data}", "--shard", "1/2"]
    assert main([str(tmp_path / "given"), *given]) == 2
    assert "--shard is for --teacher: scores are given." in capsys.readouterr().err


def test_several_data_sets_make_one_cache(
    teacher: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--data` may be repeated; pairs that occur in both are found. The last line says what was written."""
    more = tmp_path / "more.jsonl"
    more.write_text('{"question": "what ?", "candidates": [{"text": "honey", "label": 1}]}\n')
    assert main([*command(tmp_path / "cache", teacher, data), "--data", f"jsonl:{more}"]) == 0
    cache = TeacherScoreCache.open(tmp_path / "cache")
    assert cache.manifest.pairs == QUESTIONS * 10 + 1
    assert f"{tmp_path / 'cache'} has {QUESTIONS * 10 + 1} scores by " in capsys.readouterr().err
    assert cache.scores("what ?", [Candidate(text="honey")]).shape == (1,)
