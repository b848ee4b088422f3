"""Opaque networks through HTTP: their one stage is served like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.opaque import write_opaque
from tests.service.conftest import Serve, once_ready
from tests.service.observe import samples

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.encoding import Candidate
from cerberank_models.rank_pairs import rank_pairs
from cerberank_models.ranker import Ranker
from cerberank_models.windows import AS_SERVED
from cerberank_service.versions.loading import load

QUESTION, TEXTS = "how tall is the tower ?", ["330 metres", "the tower " * 40, "what do bees make", "."]
BODY: dict[str, Any] = {"question": QUESTION, "candidates": TEXTS}


def test_it_is_ranked_as_offline_in_two_dialects(open_app: Serve, tmp_path: Path) -> None:
    """The same scores; a ratio that cannot act is said; metrics count its one stage."""
    checkpoint = write_opaque(tmp_path / "out", ("fp32",))
    client = once_ready(open_app(load, checkpoint=checkpoint.path, precision="fp32", threads=1))
    answer = client.post("/v1/rank", json=BODY | {"drop_ratio": 0.5}).raise_for_status().json()
    assert "this model has no exits: drop_ratio has no effect" in answer["warnings"]
    assert {result["stage"] for result in answer["results"]} == {0}
    cohere = client.post("/v1/rerank", json={"model": "opaque", "query": QUESTION, "documents": TEXTS}).json()
    candidates = [Candidate(text=text) for text in TEXTS]
    pairs = checkpoint.encoder().encode(QUESTION, candidates, windowing=AS_SERVED)
    expected = rank_pairs(open_backend(checkpoint, precision="fp32", threads=1), pairs).scores
    for results, key in ((answer["results"], "score"), (cohere["results"], "relevance_score")):
        scores = {result["index"]: result[key] for result in results}
        assert [scores[index] for index in range(len(TEXTS))] == pytest.approx(expected.tolist(), abs=1e-6)
    assert [result["index"] for result in answer["results"]] == np.argsort(-expected).tolist()
    version = checkpoint.manifest.version
    counted = samples(client)
    assert counted[f"cerberank_tokens_total{{model=opaque,stage=0,version={version}}}"] > 64
    assert not [name for name in counted if "stage=1" in name]


def test_the_lexical_layer_drops_before_its_one_stage(open_app: Serve, tmp_path: Path) -> None:
    """A checkpoint states the share, or a request; the engine runs what is left, other dialects give 0 for the rest."""
    imported = write_opaque(tmp_path / "out", ("fp32",))
    config = imported.config.model_copy(update={"lexical_ratio": 0.5})
    checkpoint = revise_checkpoint(imported, tmp_path / "lexical", version="2", config=config)
    client = once_ready(open_app(load, checkpoint=checkpoint.path, precision="fp32", threads=1))
    body = BODY | {"candidates": ["the tower is tall", "bees", "330 metres", "how tall is it"]}
    answer = client.post("/v1/rank", json=body).raise_for_status().json()
    assert (answer["lexical_ratio"], answer["drop_schedule"]) == (0.5, [])
    dropped = [result for result in answer["results"] if "lexical_score" in result]
    assert [(result["score"], result["stage"]) for result in dropped] == [(None, -1), (None, -1)]
    assert [result["index"] for result in dropped] == [1, 2]
    assert answer["warnings"] == []
    offline = Ranker.load(checkpoint.path, precision="fp32", threads=1).rank(**body).to_json()
    texts = client.post("/v1/rank", json=body | {"return_text": True}).json()
    assert {name: texts[name] for name in offline if name != "id"} == offline
    asked = answer["usage"]["tokens"] + texts["usage"]["tokens"]
    assert samples(client)["cerberank_tokens_total{model=opaque,stage=0,version=2}"] == asked
    whole = client.post("/v1/rank", json=body | {"drop_ratio": 0}).json()
    assert {result["stage"] for result in whole["results"]} == {0}
    assert whole["usage"]["tokens"] > answer["usage"]["tokens"]
    cohere = client.post("/v1/rerank", json={"query": body["question"], "documents": body["candidates"]}).json()
    assert [result["relevance_score"] for result in cohere["results"]][2:] == [0.0, 0.0]
    (entry,) = client.get("/v1/models").json()["models"]
    assert (entry["lexical_ratio"], entry["longer_lists"]) == (0.5, [])
    assert samples(client)["cerberank_lexical_dropped_candidates_total{model=opaque,version=2}"] == 6
