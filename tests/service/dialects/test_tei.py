from __future__ import annotations

from pathlib import Path

from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend, slow_loader

QUERY = {"query": "how tall?", "texts": ["it is old", "330 metres", "made of iron"]}


def test_a_direction_matters_only_where_texts_are_cut(client: TestClient) -> None:
    """Texts that fit are ranked whatever the direction."""
    answers = [
        client.post("/rerank", json=QUERY | {"truncation_direction": direction}).raise_for_status().json()
        for direction in (None, "Right", "Left", "left")
    ]
    assert all(answer == answers[0] for answer in answers)


def test_info_names_the_model_and_the_limits(serve: Serve) -> None:
    """Clients read it to find out how to split their requests."""
    info = serve(FakeBackend(), max_candidates=4).get("/info").raise_for_status().json()
    assert (info["model_id"], info["model_sha"]) == ("fake-ranker", "7")
    assert (info["max_client_batch_size"], info["max_input_length"]) == (4, 64)
    assert "reranker" in info["model_type"]


def test_while_the_model_loads_it_is_unhealthy(open_app: Serve, tmp_path: Path) -> None:
    """Every path of the dialect answers 503 in that server's error format."""
    with slow_loader(tmp_path) as slowly:
        client = open_app(slowly)
        for response in (client.post("/rerank", json=QUERY), client.get("/info")):
            assert (response.status_code, response.json()["error_type"]) == (503, "Unhealthy")
        assert client.get("/health").status_code == 503
