"""The promises that all dialects keep, each in its own fields and its own answer; bodies of clients are `recorded/`.

A row of DIALECTS says how a dialect asks and where its answer is; what a dialect has no field for is left out of the
row. What only one dialect has is in its own test file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import RAISES, SECRET, FakeBackend, ranker_config

TEXTS = ["it is old", "330 metres", "made of iron"]
MANY = [f"candidate number {number}" for number in range(30)]
JINA = "jina-reranker-v2-base-multilingual"
LONG = "the tower is tall and old. " * 20
CUT = ["a " * 50_000]
"""A text whose end windows do not hold."""
HEADERS = {"X-Request-Id": "r-1"}
Change = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """A path and its fields."""

    path: str
    body: Callable[[str, Sequence[Any]], dict[str, Any]]
    """The body for a question and its texts."""
    places: Callable[[Any], Sequence[Mapping[str, Any]]]
    """The places of an answer, each with its `index`."""
    score: str = "relevance_score"
    best_first: bool = True
    """False: places are in the order of the texts."""
    drops: bool = True
    """False: no candidate is dropped, whatever the schedule."""
    limit: str | None = None
    """Limits the number of places; null and 0 do not limit it."""
    logits: Sequence[Change] = ()
    """Fields with which scores are log-odds."""
    document: Callable[[Mapping[str, Any]], Any] = lambda place: place.get("document", "left out")
    documents: Sequence[tuple[Change, Callable[[str], Any]]] = ()
    """Fields, and the document of a place that has the text."""
    cut: Sequence[Change] = ()
    """Fields that allow texts to be cut."""
    uncut: Sequence[Change] = ()
    """Fields that refuse to cut texts."""
    beginning: Sequence[Change] = ()
    """Fields by which the beginning of a text is read, and not its windows."""
    wrong: Sequence[Change] = ()
    """Fields that this dialect refuses, beside those that all do."""
    invalid: int = 422
    failed: int = 500
    unknown: str | None = "another"
    """A model that is not served; None where a body has no `model`."""
    default: bool = True
    """True if a body may leave the model out."""
    tokens: Callable[[Any], int] | None = None
    """The tokens that an answer states."""
    error: Callable[[dict[str, Any], int], bool] = lambda body, status: False
    """True if a body is an error of this dialect with the status."""


def documents(question: str, texts: Sequence[Any]) -> dict[str, Any]:
    return {"query": question, "documents": list(texts)}


def tensors(question: str, texts: Sequence[Any]) -> dict[str, Any]:
    pairs = (("question", [question]), ("candidates", list(texts)))
    return {"inputs": [{"name": name, "shape": [len(data)], "datatype": "BYTES", "data": data} for name, data in pairs]}


def by_candidate(answer: dict[str, Any]) -> list[dict[str, Any]]:
    (scores,) = (output["data"] for output in answer["outputs"] if output["name"] == "scores")
    return [{"index": index, "score": score} for index, score in enumerate(scores)]


def keys(*names: str, **values: object) -> Callable[[dict[str, Any], int], bool]:
    """Errors with these names and no others, and some of the values."""
    return lambda body, _: set(body) == {*names, *values} and values.items() <= body.items()


def vllm_error(body: dict[str, Any], status: int) -> bool:
    kind = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}[status]
    error = body["error"]
    return (error["type"], error["param"], error["code"]) == (kind, None, status)


def nim_error(body: dict[str, Any], status: int) -> bool:
    kind = "internal_server_error" if status == 500 else "invalid_request_error"
    return set(body) == {"object", "message", "detail", "type"} and body["type"] == kind


def tei_error(body: dict[str, Any], status: int) -> bool:
    return set(body) == {"error", "error_type"} and body["error_type"] == {422: "Validation", 424: "Backend"}[status]


LEFT_OUT = "left out"
YES, NO = (True, "true", "True"), (False, "false", None)
"""Some clients send booleans as texts."""
SPELLINGS: list[tuple[Change, Callable[[str], Any]]] = [
    ({}, lambda _: LEFT_OUT),
    *(({"return_documents": yes}, lambda text: {"text": text}) for yes in YES),
    *(({"return_documents": no}, lambda _: LEFT_OUT) for no in NO),
]
DIALECTS = {
    "cohere v2": Dialect(
        path="/v2/rerank",
        body=documents,
        places=lambda answer: answer["results"],
        limit="top_n",
        documents=SPELLINGS,
        tokens=lambda answer: answer["meta"]["tokens"]["input_tokens"],
        error=keys("message", id="r-1"),
        wrong=[{"documents": [{"text": "a"}]}, {"top_n": "3"}, {"priority": 1000}, {"return_documents": "yes"}],
    ),
    "cohere v1": Dialect(
        path="/v1/rerank",
        body=documents,
        places=lambda answer: answer["results"],
        limit="top_n",
        documents=SPELLINGS,
        tokens=lambda answer: answer["meta"]["tokens"]["input_tokens"],
        beginning=[{"max_chunks_per_doc": 1}],
        error=keys("message", "detail", id="r-1"),
        wrong=[
            {"documents": [{"title": "a"}]},
            {"documents": [3]},
            {"documents": [{"text": "a"}], "rank_fields": ["title"]},
            {"documents": [{"title": ["a"]}], "rank_fields": ["title"]},
        ],
    ),
    "voyage": Dialect(
        path="/v1/rerank",
        body=lambda question, texts: documents(question, texts) | {"model": "fake-ranker", "truncation": True},
        places=lambda answer: answer["data"],
        limit="top_k",
        documents=[({"return_documents": True}, lambda text: text), ({}, lambda _: LEFT_OUT)],
        cut=[{"truncation": True}, {"truncation": None}],
        uncut=[{"truncation": False}, {"truncation": "false"}],
        tokens=lambda answer: answer["usage"]["total_tokens"],
        unknown="rerank-2.5",
        default=False,
        error=keys("detail"),
        wrong=[{"truncation": "no"}],
    ),
    "jina": Dialect(
        path="/v1/rerank",
        body=lambda question, texts: documents(question, texts) | {"model": JINA},
        places=lambda answer: answer["results"],
        limit="top_n",
        documents=[({}, lambda text: {"text": text}), ({"return_documents": False}, lambda _: LEFT_OUT)],
        tokens=lambda answer: answer["usage"]["total_tokens"],
        unknown="jina-other",
        default=False,
        error=lambda body, _: set(body) == {"detail"} and body["detail"].startswith("[RID: r-1] "),
        wrong=[{"documents": [{"image": "x"}]}, {"return_embeddings": True}],
    ),
    "tei": Dialect(
        path="/rerank",
        body=lambda question, texts: {"query": question, "texts": list(texts)},
        places=lambda answer: answer,
        score="score",
        limit="top_n",
        logits=[{"raw_scores": True}],
        document=lambda place: place.get("text", LEFT_OUT),
        documents=[({"return_text": True}, lambda text: text), ({}, lambda _: LEFT_OUT)],
        cut=[{}, {"truncate": None}, {"truncate": True, "truncation_direction": "right"}],
        uncut=[{"truncate": False}, {"truncation_direction": "Left"}],
        beginning=[{"truncate": True}],
        failed=424,
        unknown=None,
        default=False,
        error=tei_error,
        wrong=[{"texts": [1]}, {"truncation_direction": "Middle"}],
    ),
    "vllm": Dialect(
        path="/rerank",
        body=documents,
        places=lambda answer: answer["results"],
        limit="top_n",
        logits=[{"use_activation": False}],
        document=lambda place: place["document"]["text"],
        documents=[({}, lambda text: text)],
        beginning=[{"truncate_prompt_tokens": -1}],
        tokens=lambda answer: answer["usage"]["total_tokens"],
        invalid=400,
        error=vllm_error,
        wrong=[{"truncation_side": "left"}],
    ),
    "infinity": Dialect(
        path="/rerank",
        body=lambda question, texts: documents(question, texts) | {"raw_scores": False},
        places=lambda answer: answer["results"],
        limit="top_n",
        logits=[{"raw_scores": True}],
        documents=[({"return_documents": True}, lambda text: text), ({}, lambda _: None)],
        tokens=lambda answer: answer["usage"]["total_tokens"],
        invalid=400,
        error=vllm_error,
    ),
    "score": Dialect(
        path="/score",
        body=lambda question, texts: {"text_1": question, "text_2": list(texts)},
        places=lambda answer: answer["data"],
        score="score",
        best_first=False,
        beginning=[{"truncate_prompt_tokens": 512}],
        tokens=lambda answer: answer["usage"]["total_tokens"],
        invalid=400,
        error=vllm_error,
    ),
    "weaviate": Dialect(
        path="/rerank",
        body=lambda question, texts: documents(question, texts) | {"property": ""},
        places=lambda answer: [{"index": index, **each} for index, each in enumerate(answer["scores"])],
        score="score",
        best_first=False,
        drops=False,
        unknown=None,
        default=False,
        documents=[({}, lambda text: text)],
        error=keys("error"),
        wrong=[{"documents": None}, {"documents": [{"text": "a"}]}],
    ),
    "nim": Dialect(
        path="/v1/ranking",
        body=lambda question, texts: {"query": {"text": question}, "passages": [{"text": text} for text in texts]},
        places=lambda answer: answer["rankings"],
        score="logit",
        logits=[{}],
        cut=[{}, {"truncate": "END"}],
        uncut=[{"truncate": "NONE"}],
        beginning=[{"truncate": "END"}],
        tokens=lambda answer: answer["usage"]["total_tokens"],
        error=nim_error,
        wrong=[{"query": "how tall?"}, {"passages": ["a"]}],
    ),
    "open inference": Dialect(
        path="/v2/models/fake-ranker/infer",
        body=tensors,
        places=by_candidate,
        score="score",
        best_first=False,
        unknown=None,
        default=False,
        error=keys("error"),
        wrong=[
            {"outputs": [{"name": "other"}]},
            {"parameters": {"drop_ratio": 3}},
            {"parameters": {str(number): 0 for number in range(65)}},
            {"inputs": tensors("how?", ["a"])["inputs"][:1]},
            {"inputs": tensors("how?", ["a"])["inputs"][:1] * 2},
            {"inputs": [], "id": 3},
            tensors("how?", [1]),
        ],
    ),
}

DIALECTS |= {
    "llama.cpp": replace(DIALECTS["vllm"], path="/v1/reranking"),
    "lemonade": replace(DIALECTS["vllm"], path="/api/v1/reranking"),
    "openvino": replace(DIALECTS["cohere v2"], path="/v3/rerank"),
    "infinity v3": replace(DIALECTS["infinity"], path="/infinity/rerank", body=DIALECTS["tei"].body),
}


def cases(column: Callable[[Dialect], Sequence[Any]]) -> list[Any]:
    """The dialects, each with every entry of its column."""
    return [
        pytest.param(dialect, entry, id=f"{name} {number}")
        for name, dialect in DIALECTS.items()
        for number, entry in enumerate(column(dialect))
    ]


@pytest.fixture(scope="module")
def client(serve_once: Serve) -> TestClient:
    """It answers to Jina's model as well."""
    return serve_once(FakeBackend(), aliases=JINA, max_candidates=40)


@pytest.fixture(scope="module")
def dropping(serve_once: Serve) -> TestClient:
    """Half of the candidates are dropped by each exit."""
    return serve_once(FakeBackend(ranker_config(schedule=(0.5, 0.5))), aliases=JINA)


def places(client: TestClient, dialect: Dialect, texts: Sequence[str] = TEXTS, **fields: object) -> list[Any]:
    answer = client.post(dialect.path, json=dialect.body("how tall?", texts) | fields).raise_for_status().json()
    return list(dialect.places(answer))


def native(client: TestClient, texts: Sequence[str] = TEXTS, **fields: object) -> dict[int, float]:
    """The scores of `/v1/rank` by index, in its order."""
    body = {"question": "how tall?", "candidates": texts} | fields
    answer = client.post("/v1/rank", json=body).raise_for_status().json()
    return {result["index"]: result["score"] for result in answer["results"]}


def log_odds(scores: Mapping[int, float]) -> dict[int, float]:
    return {index: math.log(score / (1 - score)) for index, score in scores.items()}


@pytest.mark.parametrize("texts", [TEXTS, [*TEXTS[:2], LONG]], ids=["short", "long"])
@pytest.mark.parametrize("name", DIALECTS)
def test_order_and_scores_are_the_native_ones(client: TestClient, name: str, texts: Sequence[str]) -> None:
    """The dialect only translates, and reads long texts in windows."""
    dialect, expected = DIALECTS[name], native(client, texts)
    got = {place["index"]: place[dialect.score] for place in places(client, dialect, texts)}
    assert list(got) == (list(expected) if dialect.best_first else [0, 1, 2])
    assert got == pytest.approx(log_odds(expected) if {} in dialect.logits else expected, rel=1e-9)


@pytest.mark.parametrize(("dialect", "change"), cases(lambda dialect: dialect.beginning))
def test_the_beginning_alone_is_read_on_request(client: TestClient, dialect: Dialect, change: Change) -> None:
    """As by `windows` of the native path."""
    texts = [*TEXTS[:2], LONG]
    expected = native(client, texts, windows="off")
    got = {place["index"]: place[dialect.score] for place in places(client, dialect, texts, **change)}
    assert got == pytest.approx(log_odds(expected) if {} in dialect.logits else expected, rel=1e-9)
    assert expected[2] != native(client, texts)[2]


@pytest.mark.parametrize("name", [name for name, dialect in DIALECTS.items() if dialect.drops])
def test_scores_never_rise_when_candidates_are_dropped(dropping: TestClient, name: str) -> None:
    """Clients sort by them, so they must not turn the order around; the native ones do rise where a stage ends."""
    dialect, expected = DIALECTS[name], native(dropping, MANY)
    got = {place["index"]: place[dialect.score] for place in places(dropping, dialect, MANY)}
    assert list(got) == (list(expected) if dialect.best_first else list(range(30)))
    along = [got[index] for index in expected]
    assert along == sorted(along, reverse=True)
    assert list(expected.values()) != sorted(expected.values(), reverse=True)


@pytest.mark.parametrize("name", [name for name, dialect in DIALECTS.items() if dialect.tokens])
def test_tokens_are_those_of_the_native_answer(client: TestClient, name: str) -> None:
    """Clients are charged by them elsewhere."""
    dialect = DIALECTS[name]
    answer = client.post(dialect.path, json=dialect.body("how tall?", TEXTS)).json()
    own = client.post("/v1/rank", json={"question": "how tall?", "candidates": TEXTS}).json()
    assert dialect.tokens(answer) == own["usage"]["tokens"] > 0


@pytest.mark.parametrize(("dialect", "change"), cases(lambda dialect: dialect.logits))
def test_raw_scores_are_log_odds(client: TestClient, dialect: Dialect, change: Change) -> None:
    """The sigmoid of a raw score is the score."""
    got = {place["index"]: place[dialect.score] for place in places(client, dialect, **change)}
    assert got == pytest.approx(log_odds(native(client)), rel=1e-9)


@pytest.mark.parametrize(("dialect", "limit"), cases(lambda dialect: (None, 0, 1, 2, 9) if dialect.limit else ()))
def test_the_best_are_given_up_to_the_limit(client: TestClient, dialect: Dialect, limit: int | None) -> None:
    """Clients send null or 0 for no limit."""
    assert dialect.limit is not None
    got = places(client, dialect, **{dialect.limit: limit})
    assert [place["index"] for place in got] == list(native(client))[: limit or 3]


@pytest.mark.parametrize(("dialect", "asked"), cases(lambda dialect: dialect.documents))
def test_documents_come_back_as_asked_for(client: TestClient, dialect: Dialect, asked: tuple[Change, Any]) -> None:
    """In the form of the dialect, beside their places."""
    change, form = asked
    for place in places(client, dialect, **change):
        document = form(TEXTS[place["index"]])
        assert dialect.document(place) == document
        assert document != LEFT_OUT or set(place) == {"index", dialect.score}


@pytest.mark.parametrize(("dialect", "change"), cases(lambda dialect: [*dialect.cut, *dialect.uncut]))
def test_texts_are_cut_only_where_that_is_allowed(client: TestClient, dialect: Dialect, change: Change) -> None:
    """Without leave a text that windows do not hold to its end is refused, and nothing else."""
    for texts in (TEXTS, ["a " * 500]):
        assert places(client, dialect, texts, **change)
    answer = client.post(dialect.path, json=dialect.body("how tall?", CUT) | change)
    if change in dialect.uncut:
        assert answer.status_code == dialect.invalid
        assert dialect.error(answer.json(), dialect.invalid)
    else:
        assert answer.status_code == 200


@pytest.mark.parametrize("name", DIALECTS)
def test_errors_have_the_dialect_s_format(client: TestClient, name: str) -> None:
    """Its status and its body, so that clients raise their own errors; nothing of the model's insides is told."""
    dialect = DIALECTS[name]
    body = dialect.body("how tall?", TEXTS)
    invalid = [dialect.body(" ", TEXTS), dialect.body("how tall?", []), dialect.body("how tall?", ["a"] * 41)]
    invalid += [body | change for change in dialect.wrong]
    invalid += [body | {dialect.limit: -1}] if dialect.limit else []
    refused = [(content, dialect.invalid) for content in invalid]
    refused += [(dialect.body("how tall?", [RAISES]), dialect.failed)]
    refused += [(body | {"model": dialect.unknown}, 404)] if dialect.unknown else []
    for content, status in refused:
        answer = client.post(dialect.path, json=content, headers=HEADERS)
        assert (answer.status_code, content) == (status, content)
        assert dialect.error(answer.json(), status), answer.text
        assert SECRET not in answer.text


@pytest.mark.parametrize("name", [name for name, dialect in DIALECTS.items() if dialect.default])
def test_without_a_model_the_default_answers(client: TestClient, name: str) -> None:
    """Also where the vendor itself demands one."""
    dialect = DIALECTS[name]
    body = {key: value for key, value in dialect.body("how tall?", TEXTS).items() if key != "model"}
    answers = [client.post(dialect.path, json=each).json() for each in (body, body | {"model": "fake-ranker"})]
    assert dialect.places(answers[0]) == dialect.places(answers[1])
