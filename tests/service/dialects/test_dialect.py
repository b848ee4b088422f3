"""A dialect that the product does not have plugs in as one file and one name in a list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend, loader
from tests.service.observe import wait_until

from cerberank_models.encoding import Candidate
from cerberank_models.ranking.call import RankAnswer, RankCall
from cerberank_models.request import Wire
from cerberank_service.app import create_app
from cerberank_service.dialects import DIALECTS, NATIVE, vllm
from cerberank_service.dialects.dialect import Dialect, FormattedError, by_path, select_dialect
from cerberank_service.dialects.wire import Document, Items, read_json, validate
from cerberank_service.errors import ServiceError
from cerberank_service.ranking.read import Reader
from cerberank_service.settings import Settings


class Request(Wire):
    """The request of the toy's clients."""

    ask: str
    among: Annotated[list[str], Items]


class Answer(Wire):
    """Their answer: the texts, best first."""

    best: list[str]


class Failure(Wire):
    """Their error."""

    why: str


def parse(document: Document) -> tuple[RankCall, list[str]]:
    request = validate(Request, document)
    return RankCall(question=request.ask, candidates=tuple(map(_candidate, request.among))), request.among


def _candidate(text: str) -> Candidate:
    return Candidate(text=text)


def render(answer: RankAnswer, texts: list[str]) -> dict[str, Any]:
    return {"best": [texts[index] for index in answer.order.tolist()]}


def format_error(error: ServiceError, request_id: str) -> tuple[int, dict[str, str]]:
    return 418, {"why": error.message}


TOY = Dialect(
    paths=("/toy",),
    summary="A toy",
    tag="toy",
    request=Request,
    response=Answer,
    error=Failure,
    parse=parse,
    render=render,
    format_error=format_error,
)


def test_another_dialect_is_one_file_and_a_name_in_a_list(tmp_path: Path, no_settings: None) -> None:
    """It is read, ranked, rendered, described and answered with errors of its own, beside all the others."""
    app = create_app(Settings(), loader(FakeBackend(), tmp_path), dialects=(*DIALECTS, TOY))
    with TestClient(app) as client:
        wait_until(lambda: client.get("/health/ready").status_code == 200)
        texts = ["a", "b", "c"]
        native = client.post("/v1/rank", json={"question": "how?", "candidates": texts, "return_text": True}).json()
        toy = client.post("/toy", json={"ask": "how?", "among": texts})
        assert toy.json() == {"best": [result["text"] for result in native["results"]]}
        refused = client.post("/toy", json={"ask": "how?"})
        assert (refused.status_code, refused.json()) == (418, {"why": "among: is required"})
        assert "/toy" in client.get("/openapi.json").json()["paths"]


SHARED = {path: dialects for path, dialects in by_path(DIALECTS).items() if len(dialects) > 1}
COMMON = {"model": "m", "query": "q", "documents": ["a"]}


@pytest.mark.parametrize(
    ("path", "fields", "tag"),
    [
        ("/v1/rerank", COMMON | {"documents": [{"text": "a", "truncation": True}]}, "cohere"),
        ("/v1/rerank", COMMON | {"top_k": None}, "voyage"),
        ("/v1/rerank", COMMON | {"model": "rerank-2.5-lite"}, "voyage"),
        ("/v1/rerank", COMMON | {"model": "rerank-lite-1"}, "voyage"),
        ("/v1/rerank", COMMON | {"model": "rerank-english-v3.0"}, "cohere"),
        ("/rerank", {"query": "q", "texts": ["documents"]}, "text-embeddings-inference"),
        ("/rerank", {"query": "q", "texts": ["a"], "raw_scores": False}, "text-embeddings-inference"),
    ],
)
def test_fields_tell_the_dialect(path: str, fields: dict[str, Any], tag: str) -> None:
    """Top-level names only: a document may have any. The usual bodies of each dialect are in the matrix."""
    assert select_dialect(SHARED[path], read_json(json.dumps(fields).encode())).tag == tag


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"3", b'{"top_k": "\xff"}'])
def test_what_is_no_object_is_the_first_dialect_s(body: bytes) -> None:
    """The first dialect then says what is wrong with it."""
    for dialects in SHARED.values():
        with pytest.raises(FormattedError) as caught:
            Reader(dialects, 10)(body)
        assert caught.value.format_error is dialects[0].format_error


def test_half_an_emoji_does_not_change_the_dialect() -> None:
    """The repair that the parsers make is made here too."""
    assert select_dialect(SHARED["/rerank"], read_json(b'{"query": "\\ud83d", "documents": ["a"]}')).tag == "vllm"


def test_only_shared_paths_need_a_claim() -> None:
    """The first dialect of each takes the rest; every other one can be told from it."""
    assert set(SHARED) == {"/v1/rerank", "/rerank", "/invocations"}
    for dialects in SHARED.values():
        assert dialects[0].matches is None
        assert all(dialect.matches for dialect in dialects[1:])


def test_a_prefix_leaves_no_doubt(serve: Serve) -> None:
    """A base URL of its own for each, for clients whose fields do not tell."""
    client = serve(FakeBackend(), aliases="m")
    for path, results in (
        ("/jina/v1/rerank", "results"),
        ("/voyage/v1/rerank", "data"),
        ("/vllm/v1/rerank", "results"),
        ("/infinity/rerank", "results"),
    ):
        assert len(client.post(path, json=COMMON).raise_for_status().json()[results]) == 1


def test_another_name_of_a_field_is_not_logged_as_ignored() -> None:
    """`query` of the native path and `texts` of Infinity 3 are fields; `texts` of the native path is not."""
    assert NATIVE.knows("question")
    assert NATIVE.knows("query")
    assert vllm.INFINITY.knows("texts")
    assert not NATIVE.knows("texts")
