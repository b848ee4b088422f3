"""`/v1/embeddings` with a first stage on fakes; `test_first_stage_checkpoint.py` compares its vectors with scores."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.service.fakes import GIVES_NAN, RAISES, SECRET, tokenizer
from tests.service.first_stages import WIDTH, FakeVectors
from tests.service.observe import samples, service_of, wait_until
from tests.service.ranking.conftest import Open

from cerberank_models.text_encoding import TextEncoder
from cerberank_service.access.key_file import add_key

TEXTS = ["it is old", "330 metres", "it is old", ""]


def embed(client: TestClient, texts: str | list[str], **fields: Any) -> Any:
    return client.post("/v1/embeddings", json={"input": texts} | fields).raise_for_status().json()


def test_each_text_has_its_vector(serve_first: Open) -> None:
    """Numbers, or the bytes of float32, in the order of the texts, as the encoder computes them for candidates."""
    served = serve_first()
    encoded = TextEncoder(tokenizer(), served.vectors.config).candidates(TEXTS)
    expected = np.stack(FakeVectors(served.vectors.config).encode(encoded)).astype(np.float32)
    answer = embed(served.client, TEXTS, user="u", dimensions=WIDTH)
    assert (answer["object"], answer["model"]) == ("list", "fake-ranker")
    assert answer["usage"] == {"prompt_tokens": encoded.tokens, "total_tokens": encoded.tokens}
    assert [(each["object"], each["index"]) for each in answer["data"]] == [("embedding", n) for n in range(4)]
    np.testing.assert_array_equal([each["embedding"] for each in answer["data"]], expected)
    binary = embed(served.client, TEXTS, encoding_format="base64", model="fake-ranker")["data"]
    rows = [np.frombuffer(base64.b64decode(each["embedding"]), dtype="<f4") for each in binary]
    np.testing.assert_array_equal(rows, expected)
    assert embed(served.client, TEXTS[1])["data"] == [answer["data"][1] | {"index": 0}]
    wait_until(lambda: service_of(served.client).load().queued_tokens == 0)


def test_a_text_that_is_cut_is_counted(serve_first: Open) -> None:
    """By the header of cut candidates, which is absent otherwise."""
    client = serve_first().client
    answers = [client.post("/v1/embeddings", json={"input": [text, "a"]}) for text in ("a " * 50, "a")]
    assert [answer.headers.get("X-Truncated-Candidates") for answer in answers] == ["1", None]
    assert answers[0].headers["X-Model-Version"] == "fake-ranker@7"


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"input": []}, 400, "input"),
        ({"input": [[1, 2]]}, 400, "input[0]: must be a text"),
        ({"input": "a", "dimensions": 7}, 400, "have 4 numbers; leave the field out"),
        ({"input": ["a"] * 41}, 400, "CERBERANK_MAX_CANDIDATES"),
        ({"input": "a", "model": "another"}, 404, "served: fake-ranker"),
        ({"input": RAISES}, 500, "the model failed on this request"),
        ({"input": GIVES_NAN}, 500, "not a number"),
    ],
)
def test_an_error_is_openai_s(body: dict[str, Any], status: int, message: str, serve_first: Open) -> None:
    """In the body that its clients read."""
    answer = serve_first(max_candidates=40).client.post("/v1/embeddings", json=body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert (set(error), error["code"]) == ({"message", "type", "param", "code"}, status)
    assert message in error["message"]
    assert SECRET not in answer.text


def test_a_model_without_a_bi_encoder_says_how_to_get_one(client: TestClient) -> None:
    answer = client.post("/v1/embeddings", json={"input": "a"})
    assert answer.status_code == 400
    assert "`cerberank checkpoint first-stage` attaches one" in answer.json()["error"]["message"]


def test_tokens_count_in_the_quota_of_a_key(serve_first: Open, tmp_path: Path) -> None:
    """As those of a question; without the key nothing is embedded."""
    keys = tmp_path / "keys.json"
    headers = {"Authorization": f"Bearer {add_key(keys, 'a', tokens_per_minute=20)}"}
    client = serve_first(keys_file=keys).client
    assert client.post("/v1/embeddings", json={"input": "a"}).status_code == 401
    answers = [client.post("/v1/embeddings", json={"input": ["it is old"] * 4}, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    (counted,) = (value for name, value in samples(client).items() if name.startswith("cerberank_key_tokens_total"))
    assert counted == answers[0].json()["usage"]["total_tokens"] > 20
