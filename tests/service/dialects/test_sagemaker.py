from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend
from tests.service.observe import service_of

from cerberank_service.dialects.dialect import select_dialect
from cerberank_service.dialects.sagemaker import INVOCATIONS
from cerberank_service.dialects.wire import read_json

TEXTS = ["it is old", "330 metres"]
DOCUMENTS: dict[str, Any] = {"query": "how tall?", "documents": TEXTS}
BODIES: dict[str, tuple[dict[str, Any], str]] = {
    "/v1/rank": ({"question": "how tall?", "candidates": TEXTS}, "Rank candidates for a question"),
    "/v1/rerank": (DOCUMENTS | {"top_n": 1}, "Cohere rerank, v1"),
    "/v2/rerank": (DOCUMENTS | {"model": "m", "max_tokens_per_doc": 100}, "Cohere rerank, v2"),
    "/voyage/v1/rerank": (DOCUMENTS | {"model": "m", "top_k": 1}, "Voyage rerank"),
    "/jina/v1/rerank": (DOCUMENTS | {"model": "jina-reranker"}, "Jina rerank"),
    "/infinity/rerank": (DOCUMENTS | {"raw_scores": True}, "Infinity rerank"),
    "/rerank": ({"query": "how tall?", "texts": TEXTS}, "text-embeddings-inference rerank"),
    "/score": ({"queries": "how tall?", "documents": TEXTS}, "vLLM score"),
    "/v1/ranking": ({"query": {"text": "q"}, "passages": [{"text": text} for text in TEXTS]}, "NVIDIA NIM ranking"),
    "/v2/models/fake-ranker/infer": (
        {
            "inputs": [
                {"name": "question", "shape": [1], "datatype": "BYTES", "data": ["how tall?"]},
                {"name": "candidates", "shape": [2], "datatype": "BYTES", "data": TEXTS},
            ]
        },
        "Open Inference Protocol infer",
    ),
}
CHANGING = {"id", "timing_ms", "created"}


@pytest.fixture(scope="module")
def aliased(serve_once: Serve) -> TestClient:
    return serve_once(FakeBackend(), aliases="m,jina-reranker")


@pytest.mark.parametrize("path", BODIES)
def test_invocations_answers_as_the_body_s_own_path(aliased: TestClient, path: str) -> None:
    """Fields tell the dialect; its answer is the one of its own path."""
    body, summary = BODIES[path]
    assert select_dialect(INVOCATIONS, read_json(json.dumps(body).encode())).summary == summary
    own, invoked = (aliased.post(each, json=body).raise_for_status().json() for each in (path, "/invocations"))
    if isinstance(own, dict):
        own, invoked = (
            {name: value for name, value in each.items() if name not in CHANGING} for each in (own, invoked)
        )
    assert invoked == own


def test_several_questions_are_refused_by_their_field(client: TestClient) -> None:
    """The body of `/v1/rank/batch` is the only one of a ranking path that is not taken."""
    refused = client.post("/invocations", json={"questions": [BODIES["/v1/rank"][0]]})
    assert refused.status_code == 422
    assert "questions: this path takes one question" in refused.json()["error"]["message"]


def test_what_no_dialect_claims_is_native(aliased: TestClient) -> None:
    """And refused in the native error format."""
    for body in ({}, {"query": "q"}, [1]):
        refused = aliased.post("/invocations", json=body)
        assert (refused.status_code, refused.json()["error"]["kind"]) == (422, "invalid")


def test_ping_follows_readiness(client: TestClient) -> None:
    """200 while questions are answered, 503 once they are not."""
    assert client.get("/ping").status_code == 200
    service_of(client).refuse()
    assert client.get("/ping").status_code == 503
