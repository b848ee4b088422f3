"""Ranking with a first stage is its order, a cut, and the pairs' ranking of what is left."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.program import program

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS
from cerberank_models.encoding import Candidate
from cerberank_models.first_stage.rank import open_offline, rank_texts
from cerberank_models.first_stage.store import VectorStore
from cerberank_models.golden import check_golden
from cerberank_models.rank_pairs import rank_pairs

embed_main = program("data embed")
rank_main = program("rank")

QUESTION, TEXTS = GOLDEN_TEXTS[0]
CANDIDATES = [Candidate(text=text) for text in TEXTS]
MIXED = {"kind": "onnx", "precision": "fp32"}


def ranked(checkpoint: Checkpoint, ratios: Any, known: Any = None) -> Any:
    first = open_offline(checkpoint, known=known, **MIXED)
    policy = checkpoint.config.drop_policy(ratios)
    backend = open_backend(checkpoint, **MIXED)
    return rank_texts(first, backend, checkpoint.encoder(), QUESTION, CANDIDATES, policy=policy)


def test_survivors_are_ranked_as_pairs(checkpoint: Checkpoint) -> None:
    """Stage 0 has the first stage's scores, later stages those of the pairs, shifted by one."""
    got = ranked(checkpoint, (0.5, 0.0, 0.0)).ranking
    scores = open_offline(checkpoint, **MIXED).read(QUESTION, TEXTS).scores
    best = sorted(np.argsort(-scores, kind="stable")[:3].tolist())
    assert np.flatnonzero(got.stages == 3).tolist() == best
    assert set(got.stages.tolist()) == {0, 3}
    pairs = checkpoint.encoder().encode(QUESTION, [CANDIDATES[row] for row in best])
    alone = rank_pairs(
        open_backend(checkpoint, **MIXED), pairs, checkpoint.config.drop_policy((0.0,) * 3).after_first()
    )
    assert got.scores[best] == pytest.approx(alone.scores, abs=1e-5)
    rest = [row for row in range(len(TEXTS)) if row not in best]
    assert got.scores[rest] == pytest.approx(scores[rest], abs=1e-2)
    assert got.order.tolist() == [*(best[row] for row in alone.order), *sorted(rest, key=lambda row: -scores[row])]
    assert got.head_scores is not None
    assert np.isnan(got.head_scores[rest]).all()
    assert not np.isnan(got.head_scores[best]).any()


def test_known_vectors_are_not_computed(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """With a store's vectors the scores are the same within rounding, and the candidates' texts are not read."""
    lines = tmp_path / "texts.jsonl"
    rows = [
        json.dumps(TEXTS[0]),
        json.dumps({"text": TEXTS[1]}),
        json.dumps({"question": "?", "candidates": TEXTS[2:]}),
    ]
    lines.write_text("\n".join([*rows, "", rows[0]]))
    arguments = [str(checkpoint.path), str(lines), str(tmp_path / "store"), "--precision", "fp32"]
    assert embed_main(arguments) == 0
    assert checkpoint.config.first_stage is not None
    store = VectorStore.open(tmp_path / "store", checkpoint.config.first_stage)
    assert len(store) == len(TEXTS)
    assert store.manifest.computed_by == checkpoint.manifest.files["first-stage/onnx/fp32/encoder.onnx"]
    assert store.manifest.inputs == sha256(lines.read_bytes()).hexdigest()
    cold, known = ranked(checkpoint, (0.5, 0.0, 0.0)), ranked(checkpoint, (0.5, 0.0, 0.0), known=store)
    assert known.ranking.scores == pytest.approx(cold.ranking.scores, abs=1e-2)
    assert known.ranking.order.tolist() == cold.ranking.order.tolist()
    assert known.tokens < cold.tokens


def test_wrong_lines_are_named(checkpoint: Checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line without a text stops the run with its number before anything is written, be it the very last."""
    lines = tmp_path / "texts.jsonl"
    for wrong in ('{"id": "a"}', "3", '{"candidates": []}', "x", "[" * 100_000):
        lines.write_text(f'"a"\n{wrong}\n')
        assert embed_main([str(checkpoint.path), str(lines), str(tmp_path / "store")]) == 1
        assert f"{lines}:2: " in capsys.readouterr().err
        assert not (tmp_path / "store").exists()


def test_a_pipe_is_refused_at_once(checkpoint: Checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """TEXTS is read twice, so that it must be a regular file; a FIFO is not waited for."""
    os.mkfifo(tmp_path / "pipe")
    assert embed_main([str(checkpoint.path), str(tmp_path / "pipe"), str(tmp_path / "store")]) == 1
    assert "is not a regular file" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_the_program_ranks_with_it(checkpoint: Checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`cerberank rank` answers with the shifted stages and the whole schedule."""
    lines = tmp_path / "questions.jsonl"
    lines.write_text(json.dumps({"question": QUESTION, "candidates": list(TEXTS)}))
    options = ["--precision", "fp32", "--no-progress", "--windows", "off"]
    assert rank_main([str(lines), "--checkpoint", str(checkpoint.path), *options]) == 0
    answer = json.loads(capsys.readouterr().out)
    expected = ranked(checkpoint, None)
    assert answer["drop_schedule"] == list(checkpoint.config.schedule)
    assert [result["index"] for result in answer["results"]] == expected.ranking.order.tolist()
    assert [result["stage"] for result in answer["results"]] == sorted(expected.ranking.stages, reverse=True)
    assert answer["usage"]["tokens"] == expected.tokens


def test_the_pairs_golden_questions_still_hold(checkpoint: Checkpoint) -> None:
    """The stages of pairs know nothing of the first stage."""
    check_golden(open_backend(checkpoint, **MIXED), checkpoint, "fp32")


def test_a_policy_of_another_length_and_no_candidate_are_refused(checkpoint: Checkpoint) -> None:
    """Three stages of pairs and a first stage take three ratios."""
    with pytest.raises(ValueError, match="4 stages take 3 drop ratios"):
        ranked(checkpoint, (0.5, 0.0))
    first = open_offline(checkpoint, **MIXED)
    policy = checkpoint.config.drop_policy(0.0)
    with pytest.raises(ValueError, match="at least one candidate"):
        rank_texts(first, open_backend(checkpoint, **MIXED), checkpoint.encoder(), QUESTION, [], policy=policy)
