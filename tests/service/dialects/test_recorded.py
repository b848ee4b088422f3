"""Bodies that real clients sent (`recorded/*.json`), and what these clients read out of the answer.

`source` is `sent` for a body that the client itself has sent to a capture server, `published source` for one written
after the client's source, because the client is not a package of its own. `reads` names the list of results, and in a
result the score, the text, or the document as it was sent; `fields` are read beside the results. With `order`, results
have no `index`, but the order of the request.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend

RECORDED = {path.stem: json.loads(path.read_text()) for path in (Path(__file__).parent / "recorded").glob("*.json")}


@pytest.fixture(scope="module")
def client(serve_once: Serve) -> TestClient:
    return serve_once(FakeBackend(), aliases="cerberank-mini")


def at(value: Any, path: str) -> Any:
    """The value at a path such as `meta.tokens`; the empty path is the value itself. Raises KeyError."""
    for name in path.split(".") if path else ():
        value = value[name]
    return value


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_recorded_body_gives_what_its_client_reads(client: TestClient, name: str) -> None:
    """Places and scores in the native order, as many as asked for, with the documents in the client's form."""
    body, reads = RECORDED[name]["body"], RECORDED[name]["reads"]
    documents = body.get("documents") or body.get("texts") or [passage["text"] for passage in body["passages"]]
    question = body["query"]["text"] if isinstance(body["query"], dict) else body["query"]
    fields = body.get("rank_fields", ["text"])
    texts = [each if isinstance(each, str) else "\n".join(each[field] for field in fields) for each in documents]
    native = client.post("/v1/rank", json={"question": question, "candidates": texts}).json()["results"]
    expected = native[: body.get("top_n") or body.get("top_k")]

    answer = client.post(RECORDED[name]["path"], json=body).raise_for_status().json()
    results = at(answer, reads["results"])
    if "order" in reads:
        expected = sorted(expected, key=lambda result: int(result["index"]))
        results = [{"index": index, **result} for index, result in enumerate(results)]
    assert [result["index"] for result in results] == [result["index"] for result in expected]
    scores = [result["score"] for result in expected]
    if reads["score"] == "logit":
        scores = [pytest.approx(math.log(score / (1 - score)), rel=1e-9) for score in scores]
    assert [at(result, reads["score"]) for result in results] == scores
    for kind, given in (("text", texts), ("object", documents)):
        if kind in reads:
            assert [at(result, reads[kind]) for result in results] == [given[each["index"]] for each in expected]
    for field in reads.get("fields", []):
        assert isinstance(at(answer, field), int)
