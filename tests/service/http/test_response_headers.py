from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor

from starlette.testclient import TestClient
from tests.service.asking import held
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend
from tests.service.observe import samples, service_of, wait_until

from cerberank_service.http.response_headers import LOAD, LOAD_FORMAT, load_report
from cerberank_service.service import Load

BODY = {"question": "q", "candidates": ["a", "b"]}


def test_server_timing_says_what_the_body_says(client: TestClient) -> None:
    """Four phases in milliseconds, in the syntax of the specification; a dialect without timing has them too."""
    answer = client.post("/v1/rank", json=BODY)
    timing = dict(re.findall(r"(\w+);dur=([\d.]+)(?:, |$)", answer.headers["Server-Timing"]))
    header = {name: float(value) for name, value in timing.items()}
    body = answer.json()["timing_ms"]
    assert header.pop("total") >= body.pop("total")  # that of the body ends before the answer is written
    assert header == body
    assert "total;dur=" in client.post("/rerank", json={"query": "q", "texts": ["a"]}).headers["Server-Timing"]


def test_cut_candidates_are_counted_in_a_header(client: TestClient) -> None:
    """Also in dialects whose answers have no field for it; without any there is no header.

    The question and texts of unknown tokens have headers of their own.
    """
    long, thai = "abcdefg " * 50_000, "\u0e01\u0e02 \u0e04\u0e07"
    for path, body in (
        ("/rerank", {"query": "q", "texts": [long, "a", long]}),
        ("/voyage/v1/rerank", {"model": "fake-ranker", "query": "q", "documents": [long, "a", long], "top_k": 1}),
    ):
        assert client.post(path, json=body).raise_for_status().headers["X-Truncated-Candidates"] == "2"
    assert not [name for name in client.post("/v1/rank", json=BODY).headers if name.startswith(("x-trunc", "x-unk"))]
    headers = client.post("/rerank", json={"query": "word " * 100, "texts": [thai, "a"]}).raise_for_status().headers
    assert (headers["X-Truncated-Question"], headers["X-Unknown-Candidates"]) == ("1", "1")
    assert "X-Truncated-Candidates" not in headers
    assert "X-Unknown-Question" not in headers
    headers = client.post("/rerank", json={"query": thai, "texts": ["a"]}).raise_for_status().headers
    assert (headers["X-Unknown-Question"], headers.get("X-Unknown-Candidates")) == ("1", None)


def test_the_load_is_told_to_those_who_ask(client: TestClient) -> None:
    """The load has ORCA's two text formats; without a request for one of these there is no header."""
    text = client.post("/v1/rank", json=BODY, headers={LOAD_FORMAT: "TEXT"}).headers[LOAD]
    assert text.startswith("TEXT ")
    pairs = dict(entry.split("=") for entry in text.removeprefix("TEXT ").split(", "))
    as_json = client.post("/v1/rank", json=BODY, headers={LOAD_FORMAT: "json"}).headers[LOAD]
    named = json.loads(as_json.removeprefix("JSON "))["named_metrics"]
    assert {name.removeprefix("named_metrics.") for name in pairs} == set(named)
    for headers in ({}, {LOAD_FORMAT: "BIN"}):
        assert LOAD not in client.post("/v1/rank", json=BODY, headers=headers).headers


def test_the_load_is_that_of_the_others(serve: Serve) -> None:
    """While three requests wait, the gauges and the report agree on their tokens."""
    backend = FakeBackend()
    client = serve(backend)
    service = service_of(client)
    with ThreadPoolExecutor(3) as pool:
        with held(backend):
            waiting = [pool.submit(client.post, "/v1/rank", json=BODY) for _ in range(3)]
            wait_until(lambda: samples(client)["cerberank_queued_tokens{}"] == 3 * service.load().queued_tokens / 3 > 0)
            wait_until(lambda: service.load().requests_in_flight == 3)
        assert {future.result(20).status_code for future in waiting} == {200}
    assert service.load() == Load(queued_tokens=0, queued_seconds=0.0, requests_in_flight=0)


def test_nothing_is_computed_for_nobody() -> None:
    """The load of many engines is only gathered when it is asked for."""

    def load() -> Load:
        raise AssertionError("nobody asked")

    assert load_report(None, load) == load_report("", load) == load_report("XML", load) == {}
