"""An imported ColBERT through HTTP: its first stage ranks alone, wherever the vectors come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import MultiVectorEncoder
from starlette.testclient import TestClient
from tests.late_interaction import TEXTS, expected
from tests.service.conftest import Serve, once_ready

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.first_stage.embedding import embed, encoder_of
from cerberank_models.first_stage.opening import open_first_stage
from cerberank_models.shards import map_here
from cerberank_service.versions.loading import load

QUESTION = "how tall is the tower?"
BODY: dict[str, Any] = {"question": QUESTION, "candidates": TEXTS}
LONG = "bees " * 99
ROUNDED = 2.0**-11


def rank(client: TestClient, **changes: Any) -> Any:
    return client.post("/v1/rank", json=BODY | changes).raise_for_status().json()


def test_a_colbert_is_served(open_app: Serve, imported_colbert: Path, tmp_path: Path) -> None:
    """The library's scores, computed, cached and stored; cut texts are told or refused; a deadline and drops."""
    counts, similarity = expected(MultiVectorEncoder(str(imported_colbert / "model")), QUESTION)
    wanted = ((1 + similarity / counts[0]) / 2).tolist()
    checkpoint = read_checkpoint(imported_colbert / "out")
    options: dict[str, Any] = {"checkpoint": checkpoint.path, "backend": "onnx", "precision": "fp32", "threads": 1}
    first = open_first_stage(checkpoint, precision="fp32", threads=1)
    embed(
        lambda: iter(TEXTS),
        tmp_path / "vectors",
        inputs="0" * 64,
        computed_by="0" * 64,
        config=first.backend.config,
        precision="fp32",
        shard_map=map_here(encoder_of(first.backend, first.encoder)),
    )
    of_question, of_texts = first.encoder.questions([QUESTION]).tokens, first.encoder.candidates(TEXTS).tokens
    for settings, tokens in (({}, (of_question + of_texts, 0)), ({"vectors": tmp_path / "vectors"}, (of_question, 0))):
        client = once_ready(open_app(load, **options | settings))
        for number in tokens:
            answer = rank(client)
            scores = {each["index"]: each["score"] for each in answer["results"]}
            assert [scores[row] for row in range(len(TEXTS))] == pytest.approx(wanted, abs=ROUNDED)
            assert [each["score"] for each in answer["results"]] == sorted(scores.values(), reverse=True)
            assert {each["stage"] for each in answer["results"]} == {0}
            assert (answer["complete"], answer["warnings"], answer["usage"]["tokens"]) == (True, [], number)
    entry = client.get("/v1/models").json()["models"][0]
    assert (entry["stages"], entry["architecture"], entry["exits"]) == (1, "B0 0H0", [])
    assert entry["score"] == "(1 + mean over the question's tokens of the largest cosine) / 2"
    lexical = rank(client, lexical_ratio=0.5)
    out = {each["index"] for each in lexical["results"] if "lexical_score" in each}
    assert 0 < len(out) <= len(TEXTS) / 2
    kept = [each for each in answer["results"] if each["index"] not in out]
    assert lexical["results"][: len(kept)] == kept
    cut = rank(client, candidates=[LONG, "b"], drop_ratio=0.5)
    assert [each["truncated"] for each in cut["results"]] == [each["index"] == 0 for each in cut["results"]]
    assert cut["warnings"] == [
        "the end of 1 candidate was not read: a text holds 61 tokens",
        "this model has no exits: drop_ratio has no effect",
    ]
    long_question = client.post("/v1/rank", json=BODY | {"question": LONG}).raise_for_status()
    assert long_question.json()["warnings"][0].startswith("the question's end was not read")
    assert long_question.headers["X-Truncated-Question"] == "1"
    refused = client.post("/rerank", json={"query": QUESTION, "texts": [LONG, "b"], "truncate": False})
    assert (refused.status_code, "a text holds 61 tokens" in refused.text) == (422, True)
    assert client.post("/rerank", json={"query": QUESTION, "texts": ["a"], "truncate": False}).status_code == 200
