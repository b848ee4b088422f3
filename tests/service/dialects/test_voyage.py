from __future__ import annotations

from starlette.testclient import TestClient

QUERY = {
    "model": "fake-ranker",
    "query": "how tall?",
    "documents": ["it is old", "330 metres", "iron"],
    "truncation": True,
}


def test_the_answer_is_a_list_of_data(client: TestClient) -> None:
    """`data`, and the model that was asked for; `results` besides, for clients of Cohere that send `top_k`."""
    answer = client.post("/v1/rerank", json=QUERY).raise_for_status().json()
    assert set(answer) == {"object", "data", "results", "model", "usage"}
    assert answer["results"] == answer["data"]
    assert (answer["object"], answer["model"]) == ("list", "fake-ranker")
