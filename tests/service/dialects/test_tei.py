from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import RAISES, SECRET, FakeBackend, checkpoint_for, ranker_config

from cerberank_service.settings import Settings
from cerberank_service.versions.loading import Loaded

QUERY = {"query": "how tall?", "texts": ["it is old", "330 metres", "made of iron"]}


def test_the_answer_is_a_bare_list_in_the_native_order(client: TestClient) -> None:
    """Index and score, best first; no text unless asked for."""
    body = {"question": QUERY["query"], "candidates": QUERY["texts"]}
    native = client.post("/v1/rank", json=body).json()["results"]
    ranks = client.post("/rerank", json=QUERY).raise_for_status().json()
    assert ranks == [{"index": result["index"], "score": result["score"]} for result in native]


def test_texts_come_back_when_asked_for(client: TestClient) -> None:
    """Each beside its index."""
    ranks = client.post("/rerank", json=QUERY | {"return_text": True}).json()
    assert [rank["text"] for rank in ranks] == [QUERY["texts"][rank["index"]] for rank in ranks]


def test_raw_scores_are_log_odds(client: TestClient) -> None:
    """The sigmoid of a raw score is the score."""
    scores = np.asarray([rank["score"] for rank in client.post("/rerank", json=QUERY).json()])
    raw = np.asarray([rank["score"] for rank in client.post("/rerank", json=QUERY | {"raw_scores": True}).json()])
    np.testing.assert_allclose(1 / (1 + np.exp(-raw)), scores, atol=1e-9)


def test_scores_never_rise_when_candidates_are_dropped(serve: Serve) -> None:
    """The list is sorted by what it states."""
    client = serve(FakeBackend(ranker_config(schedule=(0.5, 0.5))))
    ranks = client.post("/rerank", json=QUERY | {"texts": [f"text {number}" for number in range(30)]}).json()
    scores = [rank["score"] for rank in ranks]
    assert scores == sorted(scores, reverse=True)
    assert sorted(rank["index"] for rank in ranks) == list(range(30))


@pytest.mark.parametrize(("top_n", "given"), [(None, 3), (0, 3), (2, 2)])
def test_top_n_limits_the_results(client: TestClient, top_n: int | None, given: int) -> None:
    """Not that server's own field, but LiteLLM and Elasticsearch send it."""
    assert len(client.post("/rerank", json=QUERY | {"top_n": top_n}).json()) == given


def test_a_direction_matters_only_where_texts_are_cut(client: TestClient) -> None:
    """Texts that fit are ranked whatever the direction."""
    answers = [
        client.post("/rerank", json=QUERY | {"truncation_direction": direction}).raise_for_status().json()
        for direction in (None, "Right", "Left", "left")
    ]
    assert all(answer == answers[0] for answer in answers)


@pytest.mark.parametrize(("truncate", "status"), [(None, 200), (True, 200), (False, 422)])
def test_truncation_happens_only_where_it_is_allowed(client: TestClient, truncate: bool | None, status: int) -> None:
    """`truncate: false` refuses what windows do not hold to its end, and nothing else."""
    for words, wanted in ((500, 200), (50_000, status)):
        body = QUERY | {"texts": ["a " * words], "truncate": truncate, "truncation_direction": "right"}
        assert client.post("/rerank", json=body).status_code == wanted
    assert client.post("/rerank", json=QUERY | {"truncate": truncate}).status_code == 200


@pytest.mark.parametrize(
    ("change", "status", "error_type"),
    [
        ({"query": ""}, 422, "Validation"),
        ({"texts": []}, 422, "Validation"),
        ({"texts": [1]}, 422, "Validation"),
        ({"texts": ["a"] * 5}, 422, "Validation"),
        ({"truncation_direction": "Middle"}, 422, "Validation"),
        ({"texts": ["a " * 50_000], "truncation_direction": "Left"}, 422, "Validation"),
        ({"top_n": -1}, 422, "Validation"),
        ({"texts": [RAISES]}, 424, "Backend"),
    ],
)
def test_errors_have_that_server_s_format(
    serve: Serve, change: dict[str, object], status: int, error_type: str
) -> None:
    """Its body and statuses; a failing model is 424, and says nothing of its insides."""
    response = serve(FakeBackend(), max_candidates=4).post("/rerank", json=QUERY | change)
    assert response.status_code == status
    assert response.json()["error_type"] == error_type
    assert set(response.json()) == {"error", "error_type"}
    assert SECRET not in response.text


def test_info_names_the_model_and_the_limits(serve: Serve) -> None:
    """What clients read to find out how to split their requests."""
    info = serve(FakeBackend(), max_candidates=4).get("/info").raise_for_status().json()
    assert (info["model_id"], info["model_sha"]) == ("fake-ranker", "7")
    assert (info["max_client_batch_size"], info["max_input_length"]) == (4, 64)
    assert "reranker" in info["model_type"]


def test_while_the_model_loads_it_is_unhealthy(open_app: Serve, tmp_path: Path) -> None:
    """Every path of the dialect answers 503 in that server's error format."""
    gate, backend = threading.Event(), FakeBackend()

    def slowly(settings: Settings) -> Loaded:
        assert gate.wait(20)
        return Loaded(checkpoint_for(backend, tmp_path), backend)

    client = open_app(slowly)
    try:
        for response in (client.post("/rerank", json=QUERY), client.get("/info")):
            assert (response.status_code, response.json()["error_type"]) == (503, "Unhealthy")
        assert client.get("/health").status_code == 503
    finally:
        gate.set()
