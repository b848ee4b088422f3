from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend, ranker_config

TEXTS = ["it is old", "330 metres", "made of iron", "in paris"]


@pytest.fixture(scope="module")
def dropping(serve_once: Serve) -> TestClient:
    return serve_once(FakeBackend(ranker_config(schedule=(0.4, 0.4))))


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
@pytest.mark.parametrize("names", [("text_1", "text_2"), ("data_1", "data_2"), ("queries", "documents")])
def test_scores_come_in_the_order_of_the_texts(dropping: TestClient, path: str, names: tuple[str, str]) -> None:
    """Sorting by them gives the native order, dropped candidates included."""
    native = dropping.post("/v1/rank", json={"question": "how tall?", "candidates": TEXTS}).json()["results"]
    body = {names[0]: "how tall?", names[1]: TEXTS}
    data = dropping.post(path, json=body).raise_for_status().json()["data"]
    assert [scored["index"] for scored in data] == [0, 1, 2, 3]
    along = np.asarray([data[result["index"]]["score"] for result in native])
    assert (np.diff(along) <= 0).all()
    assert along[0] == native[0]["score"]


@pytest.mark.parametrize("query", ["how tall?", ["how tall?"], ["how tall?"] * 4])
def test_one_query_however_it_is_written(client: TestClient, query: str | list[str]) -> None:
    """Alone, in a list, or repeated for each text."""
    answers = [client.post("/score", json={"text_1": q, "text_2": TEXTS}).json()["data"] for q in ("how tall?", query)]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"text_1": "q"}, "must have text_1"),
        ({"text_1": "q", "documents": ["a"]}, "must have text_1"),
        ({"text_1": "q", "text_2": ["a"], "queries": "q"}, "must have text_1"),
        ({"text_1": ["p", "q"], "text_2": ["a", "b"]}, "a request for each"),
        ({"text_1": ["q", "q"], "text_2": ["a", "b", "c"]}, "cannot be paired"),
        ({"text_1": " ", "text_2": ["a"]}, "blank"),
        ({"text_1": "q", "text_2": []}, "text_2"),
    ],
)
def test_what_is_no_single_question_is_refused(client: TestClient, body: dict[str, Any], said: str) -> None:
    """The error is 400 in vLLM's error format, and says what to change."""
    response = client.post("/score", json=body)
    assert response.status_code == 400
    assert said in response.json()["error"]["message"]
