"""Ranking with a first stage is its order, a cut, and the pairs' ranking of what is left."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.program import program

from cerberank_models.answer import Answer
from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS
from cerberank_models.encoding import Candidate
from cerberank_models.first_stage.opening import open_first_stage
from cerberank_models.first_stage.vector_store import VectorStore
from cerberank_models.rank_pairs import rank_pairs
from cerberank_models.ranker import Ranker

embed_main = program("data embed")

QUESTION, TEXTS = GOLDEN_TEXTS[0]
CANDIDATES = [Candidate(text=text) for text in TEXTS]
MIXED = {"kind": "onnx", "precision": "fp32"}


def ranked(checkpoint: Checkpoint, ratios: Any, stored: VectorStore | None = None, **options: Any) -> Answer:
    first = replace(open_first_stage(checkpoint, **MIXED), stored=stored)
    ranker = Ranker(checkpoint, open_backend(checkpoint, **MIXED), first)
    return ranker.rank(QUESTION, CANDIDATES, drop_ratio=ratios, windows="off", **options)


def scores_of(answer: Answer) -> list[float | None]:
    return [result.score for result in sorted(answer, key=lambda result: result.index)]


def test_survivors_are_ranked_as_pairs(checkpoint: Checkpoint) -> None:
    """Stage 0 has the first stage's scores, later stages those of the pairs, shifted by one."""
    answer = ranked(checkpoint, (0.5, 0.0, 0.0), return_heads=True)
    first = open_first_stage(checkpoint, **MIXED)
    scores = first.compute(first.read(QUESTION, TEXTS))
    best = sorted(np.argsort(-scores, kind="stable")[:3].tolist())
    assert sorted(result.index for result in answer if result.stage == 3) == best
    assert {result.stage for result in answer} == {0, 3}
    pairs = checkpoint.encoder().encode(QUESTION, [CANDIDATES[row] for row in best])
    alone = rank_pairs(
        open_backend(checkpoint, **MIXED), pairs, checkpoint.config.drop_policy((0.0,) * 3).after_first()
    )
    got = scores_of(answer)
    assert [got[row] for row in best] == pytest.approx(alone.scores, abs=1e-5)
    rest = [row for row in range(len(TEXTS)) if row not in best]
    assert [got[row] for row in rest] == pytest.approx(scores[rest], abs=1e-2)
    order = [*(best[row] for row in alone.order), *sorted(rest, key=lambda row: -scores[row])]
    assert [result.index for result in answer] == order
    assert all((result.heads is None) == (result.index in rest) for result in answer)


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
    cold, known = ranked(checkpoint, (0.5, 0.0, 0.0)), ranked(checkpoint, (0.5, 0.0, 0.0), stored=store)
    assert scores_of(known) == pytest.approx(scores_of(cold), abs=1e-2)
    assert [result.index for result in known] == [result.index for result in cold]
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
