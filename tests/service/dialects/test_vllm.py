from __future__ import annotations

import pytest
from starlette.testclient import TestClient
from tests.service.observe import logged_fields


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (["a", None], "documents[1]: must be a text"),
        (["a", 3.5], "documents[1]: must be a text"),
        ({"text": "a"}, "documents: must be a text or a list of texts"),
        (None, "documents: must be a text or a list of texts"),
    ],
)
def test_a_wrong_document_is_named_once(client: TestClient, documents: object, message: str) -> None:
    """Without the branch of a type that was not meant."""
    for path, fields in (("/rerank", {"query": "q"}), ("/score", {"queries": "q"})):
        refused = client.post(path, json={**fields, "documents": documents})
        if path == "/score" and documents is None:
            message = "body: must have text_1 (the query) and text_2"
        assert refused.status_code == 400
        assert refused.json()["error"]["message"].startswith(message)


def test_a_single_document_is_taken_and_fields_without_effect_are_logged(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The fields of vLLM's own request are accepted; a field that asks for another reading is not ignored silently."""
    common = {"user": "u", "max_tokens_per_query": 5, "priority": 3, "padding": "x"}
    answer = client.post("/rerank", json={"query": "how tall?", "documents": "330 metres"} | common)
    assert len(answer.raise_for_status().json()["results"]) == 1
    assert logged_fields(caplog) == list(common)
