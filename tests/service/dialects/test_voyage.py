from __future__ import annotations

import pytest
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import RAISES, FakeBackend, ranker_config

QUERY = {"model": "fake-ranker", "query": "how tall?", "documents": ["it is old", "330 metres", "iron"]}
TRUNCATION = {"truncation": True}


def test_the_answer_is_data_in_the_native_order(serve: Serve) -> None:
    """`data`, not `results`; scores never rise."""
    client = serve(FakeBackend(ranker_config(schedule=(0.4, 0.4))))
    native = client.post("/v1/rank", json={"question": QUERY["query"], "candidates": QUERY["documents"]}).json()
    answer = client.post("/v1/rerank", json=QUERY | TRUNCATION).raise_for_status().json()
    assert [place["index"] for place in answer["data"]] == [result["index"] for result in native["results"]]
    assert all(set(place) == {"index", "relevance_score"} for place in answer["data"])
    scores = [place["relevance_score"] for place in answer["data"]]
    assert scores == sorted(scores, reverse=True)
    assert (answer["object"], answer["model"]) == ("list", "fake-ranker")
    assert answer["usage"]["total_tokens"] == native["usage"]["tokens"]


def test_top_k_and_documents(client: TestClient) -> None:
    """A document comes back as plain text."""
    answer = client.post("/v1/rerank", json=QUERY | {"top_k": 2, "return_documents": True}).json()
    assert len(answer["data"]) == 2
    assert all(place["document"] == QUERY["documents"][place["index"]] for place in answer["data"])


@pytest.mark.parametrize("top_k", [None, 0])
def test_top_k_of_null_or_nought_is_all(client: TestClient, top_k: int | None) -> None:
    """Clients send either for no limit."""
    assert len(client.post("/v1/rerank", json=QUERY | {"top_k": top_k}).json()["data"]) == 3


@pytest.mark.parametrize(("truncation", "status"), [(True, 200), (None, 200), (False, 422), ("false", 422)])
def test_truncation_happens_only_where_it_is_allowed(client: TestClient, truncation: object, status: int) -> None:
    """`truncation: false` refuses what windows do not hold to its end, and nothing else."""
    body = QUERY | {"truncation": truncation}
    assert client.post("/v1/rerank", json=body | {"documents": ["a " * 500]}).status_code == 200
    assert client.post("/v1/rerank", json=body | {"documents": ["a " * 50_000]}).status_code == status
    assert client.post("/v1/rerank", json=body).status_code == 200


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"documents": []}, 422),
        ({"top_k": -1}, 422),
        ({"model": "rerank-2.5"}, 404),
        ({"query": ""}, 422),
        ({"documents": [RAISES]}, 500),
        ({"truncation": "no"}, 422),
    ],
)
def test_errors_carry_detail(client: TestClient, change: dict[str, object], status: int) -> None:
    """Where its SDK looks for the message."""
    response = client.post("/v1/rerank", json=QUERY | TRUNCATION | change)
    assert response.status_code == status
    assert set(response.json()) == {"detail"}
