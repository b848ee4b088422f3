"""Long texts through the service: which dialects read them in windows, what is told, counted, limited and cached."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend
from tests.service.observe import service_of
from tests.service.ranking.conftest import QUESTION, Open

from cerberank_models.encoding import Candidate, PairEncoder
from cerberank_models.ranking.call import RankCall
from cerberank_models.ranking.prepare import prepare
from cerberank_models.windows import Windowing
from cerberank_service.ranking.pipeline import pair_tokens

LONG = "the tower is tall and old. " * 20
TEXTS = ["a b", LONG, "\U0001f5fc it is here", LONG[:200], LONG[50:150], "a b", "c"]
"""Three of them do not fit into 64 tokens of a character each."""


def rank(client: TestClient, **fields: Any) -> Any:
    body = {"question": QUESTION, "candidates": TEXTS, "windows": "best"} | fields
    return client.post("/v1/rank", json=body).raise_for_status().json()


def test_the_vendors_limits_do_what_they_say(serve: Serve, encoder: PairEncoder) -> None:
    """One chunk is the beginning alone, as without windows; so many tokens of a document, and no more, are read."""
    client = serve(FakeBackend())
    body = {"query": QUESTION, "documents": TEXTS, "model": "fake-ranker"}
    cut = rank(client, windows="off")
    one = client.post("/v1/rerank", json=body | {"max_chunks_per_doc": 1}).json()
    assert [each["relevance_score"] for each in one["results"]] == [each["score"] for each in cut["results"]]
    assert one["usage"]["total_tokens"] == cut["usage"]["tokens"]
    unique = [Candidate(text=text) for text in dict.fromkeys(TEXTS)]
    beside = encoder.encode(QUESTION, [Candidate(text="")]).tokens
    wanted = sum(beside + min(5, encoder.encode(QUESTION, [each]).tokens - beside) for each in unique)
    limits = {
        "/v2/rerank": "max_tokens_per_doc",
        "/v1/rerank": "max_tokens_per_doc",
        "/rerank": "max_tokens_per_doc",
        "/jina/v1/rerank": "max_doc_length",
    }
    for path, field in limits.items():
        few = client.post(path, json=body | {field: 5}).raise_for_status().json()
        tokens = few["usage"]["total_tokens"] if "usage" in few else few["meta"]["tokens"]["input_tokens"]
        assert tokens == wanted
        assert client.post(path, json=body | {field: 10**30}).status_code == 200
    score = {"text_1": QUESTION, "text_2": TEXTS, "max_tokens_per_doc": 5}
    assert client.post("/score", json=score).raise_for_status().json()["usage"]["total_tokens"] == wanted


def test_a_text_and_a_request_have_a_bounded_number_of_windows(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest beyond the limits is told as truncated, with the limits; no candidate is lost."""
    backend = FakeBackend()
    monkeypatch.setattr("cerberank_models.ranking.call.MOST_WINDOWS", 2)
    client = serve(backend, max_candidates=9)
    backend.runs.clear()
    answer = rank(client)
    assert backend.runs[0] == (0, 9)
    assert "2 windows" in answer["warnings"][0]
    assert [result["index"] for result in answer["results"] if result["truncated"]]
    backend.runs.clear()
    rank(client, candidates=[LONG, LONG[1:], LONG[2:], LONG[3:], LONG[4:]])
    assert backend.runs[0] == (0, 5)


def test_windows_count_in_what_a_first_stage_expects_of_its_survivors(serve_first: Open) -> None:
    """Before they are tokenised: at least the tokens of a text, where a cut one has those of a pair."""
    live = service_of(serve_first().client).versions.find("fake-ranker", None)
    expected = []
    for windowing, most in ((None, None), (Windowing(), None), (Windowing(most=3), None), (Windowing(), 5)):
        candidates = (Candidate(text="word " * 400),)
        call = RankCall(question=QUESTION, candidates=candidates, windowing=windowing, most_tokens=most)
        expected.append(pair_tokens(prepare(call, live.model)))
    assert expected[0] == 64
    assert expected[1] > 2000 / 4.5
    assert expected[2] == 3 * 64
    assert expected[3] == 3 + 5 + len(QUESTION) / 4.5


def test_survivors_of_a_first_stage_are_read_in_windows(serve_first: Open) -> None:
    """The first stage cuts texts as it did; a survivor's score is its best window's, a dropped one has no window."""
    served = serve_first()
    body = {"candidates": [*TEXTS, *(f"{LONG} {number}" for number in range(4))], "windows": "best"}
    plain, answer = served.rank(**body | {"windows": "off"}), served.rank(**body)
    first = {result["index"]: result["score"] for result in plain["results"] if result["stage"] == 0}
    assert {result["index"]: result["score"] for result in answer["results"] if result["stage"] == 0} == first
    windowed = {result["index"] for result in answer["results"] if "window" in result}
    assert windowed
    assert not windowed & set(first)
    assert answer["usage"]["candidates"] == len(body["candidates"])
    assert answer["usage"]["tokens"] > plain["usage"]["tokens"]
    assert not np.isnan([result["score"] for result in answer["results"]]).any()
