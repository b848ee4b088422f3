"""A dialect that the product does not have plugs in as one file and one name in a list."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from starlette.testclient import TestClient
from tests.service.fakes import FakeBackend, loader
from tests.service.observe import wait_until

from cerberank_models.encoding import Candidate
from cerberank_service.app import create_app
from cerberank_service.call import RankAnswer, RankCall
from cerberank_service.dialects import DIALECTS
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.dialects.wire import Document, Items, Wire, validate
from cerberank_service.errors import ServiceError
from cerberank_service.settings import Settings


class Request(Wire):
    """What the toy's clients send."""

    ask: str
    among: Annotated[list[str], Items]


class Answer(Wire):
    """What they get: the texts, best first."""

    best: list[str]


class Failure(Wire):
    """What they get instead."""

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
