"""The clients' view: the unmodified SDKs of Cohere and Triton, and clients that offer another protocol."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import cohere
import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from tools.process import Process
from tritonclient.utils import InferenceServerException

QUESTION = "how tall is the tower ?"
TEXTS = ["it was built in paris", "330 metres", "bees make honey", "the tower is 330 metres tall", "a city"]
ASK = Path(__file__).with_name("Ask.java")
NO_RETRY = {"max_retries": 0}


@pytest.fixture
def order(shared_service: Process) -> list[int]:
    answer = httpx.post(f"{shared_service.url}/v1/rank", json={"question": QUESTION, "candidates": TEXTS})
    return [result["index"] for result in answer.raise_for_status().json()["results"]]


@pytest.fixture
def sdk(shared_service: Process) -> Iterator[cohere.ClientV2]:
    with cohere.ClientV2(api_key="none", base_url=shared_service.url) as client:
        yield client


def test_the_cohere_sdk_ranks(sdk: cohere.ClientV2, order: list[int]) -> None:
    """The SDK works with top_n and an alias; scores fall and are within 0..1."""
    answer = sdk.rerank(model="rerank-v3.5", query=QUESTION, documents=TEXTS, top_n=3)
    assert [result.index for result in answer.results] == order[:3]
    scores = [result.relevance_score for result in answer.results]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert answer.meta is not None
    assert answer.meta.api_version is not None
    assert answer.meta.api_version.version == "2"


def test_the_cohere_sdk_gets_typed_errors(sdk: cohere.ClientV2) -> None:
    """404 and 422 become the SDK's own exceptions, with our message in the body."""
    with pytest.raises(cohere.NotFoundError) as unknown:
        sdk.rerank(model="no-such", query=QUESTION, documents=TEXTS, request_options=NO_RETRY)
    assert "served: random-tiny, rerank-v3.5" in str(unknown.value.body)
    with pytest.raises(cohere.UnprocessableEntityError) as empty:
        sdk.rerank(model="random-tiny", query=QUESTION, documents=[], request_options=NO_RETRY)
    assert "documents" in str(empty.value.body)


def test_the_cohere_sdk_of_v1_ranks(shared_service: Process, order: list[int]) -> None:
    """The SDK works on the path shared with Voyage and Jina, and gets the documents."""
    with cohere.Client(api_key="none", base_url=shared_service.url) as client:
        answer = client.rerank(model="rerank-v3.5", query=QUESTION, documents=TEXTS, return_documents=True)
    assert [result.index for result in answer.results] == order
    assert [result.document.text for result in answer.results if result.document] == [TEXTS[i] for i in order]
    assert answer.meta is not None


@pytest.fixture
def client(shared_service: Process) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(shared_service.url.removeprefix("http://"), network_timeout=60) as client:
        yield client


def tensors(*, binary: bool) -> list[triton.InferInput]:
    made = []
    for name, texts in (("question", [QUESTION]), ("candidates", TEXTS)):
        tensor = triton.InferInput(name, [len(texts)], "BYTES")
        tensor.set_data_from_numpy(np.asarray(texts, dtype=object), binary_data=binary)
        made.append(tensor)
    return made


@pytest.mark.parametrize("binary", [True, False])
def test_triton_s_client_infers(client: triton.InferenceServerClient, order: list[int], binary: bool) -> None:
    """Binary and JSON tensors work, with the types and shapes of the metadata."""
    answer = client.infer("random-tiny", tensors(binary=binary), request_id="mine", timeout=60_000_000)
    assert answer.as_numpy("order").tolist() == order
    scores = answer.as_numpy("scores")
    assert (scores.dtype, scores.shape) == (np.float32, (len(TEXTS),))
    assert (np.diff(scores[order]) <= 0).all()
    assert answer.as_numpy("stages").dtype == np.int32
    assert answer.get_response()["id"] == "mine"
    wanted = client.infer("random-tiny", tensors(binary=binary), outputs=[triton.InferRequestedOutput("scores")])
    assert wanted.as_numpy("order") is None
    np.testing.assert_array_equal(wanted.as_numpy("scores"), scores)


def test_triton_s_client_asks_about_server_and_model(client: triton.InferenceServerClient) -> None:
    """Probes and metadata, and its own exception for a model that is not served."""
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("random-tiny")
    assert not client.is_model_ready("other")
    assert client.get_server_metadata()["name"] == "cerberank"
    assert client.get_model_metadata("random-tiny")["versions"] == ["1"]
    with pytest.raises(InferenceServerException, match="served: random-tiny"):
        client.infer("other", tensors(binary=True))


CURL = ("curl", "--silent", "--http2", "--write-out", "%{stderr}%{http_code}", "--data")


@pytest.mark.parametrize("program", ["curl", "java"])
def test_clients_that_offer_another_protocol_are_answered(shared_service: Process, program: str) -> None:
    """`curl --http2` and Java's default client send `Upgrade: h2c` with their question: once answered, not twice."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    body, url = json.dumps({"question": QUESTION, "candidates": TEXTS}), f"{shared_service.url}/v1/rank"
    command = [*CURL, body, url] if program == "curl" else ["java", str(ASK), url, body]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    status, answer = (ran.stderr, ran.stdout) if program == "curl" else ran.stdout.split("\n", 1)
    assert status == "200"
    assert len(json.loads(answer)["results"]) == len(TEXTS)
    assert "Unsupported upgrade" not in shared_service.log.read_text()
