from __future__ import annotations

import pytest
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import RAISES, FakeBackend, ranker_config

QUERY = {"model": "fake-ranker", "query": "how tall?", "documents": ["it is old", "330 metres", "made of iron"]}


def native(client: TestClient, **fields: object) -> list[tuple[int, float]]:
    body = {"question": QUERY["query"], "candidates": QUERY["documents"]} | fields
    results = client.post("/v1/rank", json=body).raise_for_status().json()["results"]
    return [(result["index"], result["score"]) for result in results]


@pytest.mark.parametrize("path", ["/v2/rerank", "/v1/rerank"])
def test_the_order_and_scores_are_the_native_ones(client: TestClient, path: str) -> None:
    """The dialect only translates."""
    answer = client.post(path, json=QUERY).raise_for_status().json()
    assert [(result["index"], result["relevance_score"]) for result in answer["results"]] == native(client)


@pytest.mark.parametrize(("path", "version"), [("/v2/rerank", "2"), ("/v1/rerank", "1")])
def test_the_answer_has_cohere_s_shape(client: TestClient, path: str, version: str) -> None:
    """The fields that its SDK requires, and no others in a result."""
    answer = client.post(path, json=QUERY, headers={"X-Request-Id": "r-1"}).json()
    assert answer["id"] == "r-1"
    assert answer["meta"]["api_version"] == {"version": version}
    assert answer["meta"]["tokens"]["input_tokens"] > 0
    assert all(set(result) == {"index", "relevance_score"} for result in answer["results"])


def test_top_n_limits_the_results(client: TestClient) -> None:
    """The best `top_n` results are returned."""
    answer = client.post("/v2/rerank", json=QUERY | {"top_n": 2}).json()
    assert [(result["index"], result["relevance_score"]) for result in answer["results"]] == native(client)[:2]


def test_relevance_never_rises_when_candidates_are_dropped(serve: Serve) -> None:
    """Clients sort by it, so it must not turn the order around."""
    client = serve(FakeBackend(ranker_config(schedule=(0.5, 0.5))))
    documents = [f"candidate number {number}" for number in range(40)]
    answer = client.post("/v2/rerank", json=QUERY | {"documents": documents}).json()
    scores = [result["relevance_score"] for result in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 40
    stages = native(client, candidates=documents)
    assert [result["index"] for result in answer["results"]] == [index for index, _ in stages]
    assert [score for _, score in stages] != scores  # the native scores do rise where a stage ends


def test_truncation_is_a_warning_in_meta(client: TestClient) -> None:
    """v2 has no field of a result for it."""
    body = QUERY | {"documents": ["a " * 500], "max_tokens_per_doc": 200}
    answer = client.post("/v2/rerank", json=body).json()
    assert "the end of 1 candidate was not read" in answer["meta"]["warnings"][0]
    assert "200 tokens" in answer["meta"]["warnings"][0]
    assert "warnings" not in client.post("/v2/rerank", json=QUERY).json()["meta"]


def test_v1_takes_objects_and_gives_documents_back(client: TestClient) -> None:
    """Further fields of a document are not read, but come back with it; for Voyage's clients documents are texts."""
    documents = ["plain", {"text": "330 metres", "title": "Tower"}]
    body = {"query": "how tall?", "documents": documents, "return_documents": True, "rank_fields": ["text"]}
    answer = client.post("/v1/rerank", json=body).raise_for_status().json()
    given = {result["index"]: result["document"] for result in answer["results"]}
    assert given == {0: {"text": "plain"}, 1: documents[1]}
    assert {each["index"]: each["document"] for each in answer["data"]} == {0: "plain", 1: "330 metres"}


def test_the_fields_of_rank_fields_are_read_in_their_order(client: TestClient) -> None:
    """An object ranks as the text of these fields does; a text has no fields, and is read whole."""
    objects = ["made of iron", {"body": "330 metres", "title": "Tower", "year": 1889}, {"title": "Paris", "body": None}]
    texts = ["made of iron", "Tower\n330 metres\n1889", "Paris"]
    fields = {"rank_fields": ["title", "body", "year"]}
    as_objects, as_texts = (
        client.post("/v1/rerank", json={"query": "how tall?", "documents": documents} | fields)
        .raise_for_status()
        .json()
        for documents in (objects, texts)
    )
    assert as_objects["results"] == as_texts["results"]


def test_a_repeated_rank_field_is_refused(client: TestClient) -> None:
    """A field's text is read once, so that what is ranked is never larger than the body."""
    body = {"query": "how tall?", "documents": [{"t": "330 metres"}], "rank_fields": ["t", "t"]}
    refused = client.post("/v1/rerank", json=body)
    assert (refused.status_code, refused.json()["message"]) == (422, "rank_fields: must name each field once")


def test_numbers_beyond_floats_are_null_in_the_answer_and_not_ranked(client: TestClient) -> None:
    """JSON has no infinity: the answer would be refused by strict readers."""
    document = '{"text": "330 metres", "t": 1e999, "more": [-1e999, 1]}'
    body = f'{{"query": "how tall?", "documents": [{document}], "return_documents": true%s}}'
    (result,) = client.post("/v1/rerank", content=body % "").json()["results"]
    assert result["document"] == {"text": "330 metres", "t": None, "more": [None, 1]}
    refused = client.post("/v1/rerank", content=body % ', "rank_fields": ["t"]')
    assert (refused.status_code, refused.json()["message"]) == (422, "documents[0]: a ranked field is no finite number")


@pytest.mark.parametrize("path", ["/v2/rerank", "/v1/rerank"])
@pytest.mark.parametrize("flag", [True, "true", "True"])
def test_documents_come_back_when_asked_for(client: TestClient, path: str, flag: object) -> None:
    """As objects with the text; some clients send booleans as texts."""
    results = client.post(path, json=QUERY | {"return_documents": flag}).json()["results"]
    assert [result["document"] for result in results] == [
        {"text": QUERY["documents"][result["index"]]} for result in results
    ]
    for no in (False, "false", None):
        results = client.post(path, json=QUERY | {"return_documents": no}).json()["results"]
        assert all("document" not in result for result in results)


@pytest.mark.parametrize("path", ["/v2/rerank", "/v1/rerank"])
@pytest.mark.parametrize("top_n", [None, 0])
def test_top_n_of_null_or_nought_is_all(client: TestClient, path: str, top_n: int | None) -> None:
    """Clients send either for no limit."""
    assert len(client.post(path, json=QUERY | {"top_n": top_n}).json()["results"]) == 3


def test_v1_has_what_other_clients_of_its_path_read(client: TestClient) -> None:
    """Voyage's `data`, Xinference's output tokens, Jina's `detail` in an error."""
    answer = client.post("/v1/rerank", json=QUERY).json()
    assert answer["data"] == answer["results"]
    assert answer["meta"]["tokens"] == {"input_tokens": answer["usage"]["total_tokens"], "output_tokens": 0}
    error = client.post("/v1/rerank", json=QUERY | {"model": "unknown"}).json()
    assert error["detail"] == error["message"]


@pytest.mark.parametrize(
    ("path", "change", "status"),
    [
        ("/v2/rerank", {"model": "unknown"}, 404),
        ("/v2/rerank", {"query": " "}, 422),
        ("/v2/rerank", {"documents": []}, 422),
        ("/v2/rerank", {"documents": [{"text": "a"}]}, 422),
        ("/v2/rerank", {"top_n": -1}, 422),
        ("/v2/rerank", {"top_n": "3"}, 422),
        ("/v2/rerank", {"priority": 1000}, 422),
        ("/v2/rerank", {"return_documents": "yes"}, 422),
        ("/v2/rerank", {"documents": ["a"] * 5}, 422),
        ("/v2/rerank", {"documents": [RAISES]}, 500),
        ("/v1/rerank", {"documents": [{"title": "a"}]}, 422),
        ("/v1/rerank", {"documents": [3]}, 422),
        ("/v1/rerank", {"documents": [{"text": "a"}], "rank_fields": ["title"]}, 422),
        ("/v1/rerank", {"documents": [{"title": ["a"]}], "rank_fields": ["title"]}, 422),
        ("/v1/rerank", {"query": ""}, 422),
    ],
)
def test_errors_have_cohere_s_format(serve: Serve, path: str, change: dict[str, object], status: int) -> None:
    """Its body, so that the SDK raises its own exception types."""
    client = serve(FakeBackend(), max_candidates=4)
    response = client.post(path, json=QUERY | change, headers={"X-Request-Id": "r-1"})
    assert response.status_code == status
    assert set(response.json()) == {"id", "message"} | ({"detail"} if path == "/v1/rerank" else set())
    assert response.json()["id"] == "r-1"


def test_an_alias_answers_to_a_vendor_s_model_name(serve: Serve) -> None:
    """Clients with a fixed model name need no change."""
    client = serve(FakeBackend(), aliases="rerank-v3.5")
    assert client.post("/v2/rerank", json=QUERY | {"model": "rerank-v3.5"}).status_code == 200


@pytest.mark.parametrize("path", ["/v2/rerank", "/v1/rerank"])
def test_without_a_model_the_default_answers(client: TestClient, path: str) -> None:
    """Also in v2, where Cohere itself demands one."""
    unnamed = {name: value for name, value in QUERY.items() if name != "model"}
    named = client.post(path, json=QUERY).json()["results"]
    assert client.post(path, json=unnamed).raise_for_status().json()["results"] == named
