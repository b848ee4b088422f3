from __future__ import annotations

from starlette.testclient import TestClient

QUERY = {"model": "fake-ranker", "query": "how tall?", "documents": ["it is old", "330 metres", "made of iron"]}


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
    assert (refused.status_code, refused.json()["message"]) == (
        422,
        "documents[0]: a ranked field is not a finite number",
    )


def test_v1_has_what_other_clients_of_its_path_read(client: TestClient) -> None:
    """Voyage's `data`, Xinference's output tokens, Jina's `detail` in an error."""
    answer = client.post("/v1/rerank", json=QUERY).json()
    assert answer["data"] == answer["results"]
    assert answer["meta"]["tokens"] == {"input_tokens": answer["usage"]["total_tokens"], "output_tokens": 0}
    error = client.post("/v1/rerank", json=QUERY | {"model": "unknown"}).json()
    assert error["detail"] == error["message"]
