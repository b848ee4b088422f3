"""The clients' view: the unmodified cohere SDK, plain HTTP in each dialect, bad requests among good ones."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cohere
import httpx
import pytest
from tests.service.observe import samples
from tools.process import Process

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.encoding import Candidate
from cerberank_models.rank import rank_pairs

QUESTION = "how tall is the tower ?"
TEXTS = ["it was built in paris", "330 metres", "bees make honey", "the tower is 330 metres tall", "a city"]
ASK = Path(__file__).with_name("Ask.java")
NO_RETRY = {"max_retries": 0}


@pytest.fixture
def sdk(shared_service: Process) -> Iterator[cohere.ClientV2]:
    with cohere.ClientV2(api_key="none", base_url=shared_service.url) as client:
        yield client


def expected_order(checkpoint: Path) -> list[int]:
    loaded = read_checkpoint(checkpoint)
    pairs = loaded.encoder().encode(QUESTION, [Candidate(text=text) for text in TEXTS])
    return rank_pairs(open_backend(loaded, precision="int8"), pairs).order.tolist()


def test_native_and_dialects_give_the_offline_order(shared_service: Process, tiny_checkpoint: Path) -> None:
    """One order in four wires, equal to ranking the same texts without a server."""
    order = expected_order(tiny_checkpoint)
    with httpx.Client(base_url=shared_service.url) as client:
        native = client.post("/v1/rank", json={"question": QUESTION, "candidates": TEXTS}).raise_for_status().json()
        v2 = client.post("/v2/rerank", json={"model": "random-tiny", "query": QUESTION, "documents": TEXTS})
        v1 = client.post("/v1/rerank", json={"query": QUESTION, "documents": TEXTS, "return_documents": True})
        tei = client.post("/rerank", json={"query": QUESTION, "texts": TEXTS, "return_text": True})
    assert [result["index"] for result in native["results"]] == order
    assert [result["index"] for result in v2.raise_for_status().json()["results"]] == order
    assert [result["index"] for result in v1.raise_for_status().json()["results"]] == order
    assert [rank["index"] for rank in tei.raise_for_status().json()] == order
    assert v1.json()["results"][0]["document"] == {"text": TEXTS[order[0]]}
    assert tei.json()[0]["text"] == TEXTS[order[0]]


def test_the_cohere_sdk_ranks(sdk: cohere.ClientV2, tiny_checkpoint: Path) -> None:
    """The SDK works with top_n and an alias; scores fall and are within 0..1."""
    answer = sdk.rerank(model="rerank-v3.5", query=QUESTION, documents=TEXTS, top_n=3)
    assert [result.index for result in answer.results] == expected_order(tiny_checkpoint)[:3]
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


def test_bad_requests_harm_no_neighbour(shared_service: Process) -> None:
    """Sixty requests at once, every third bad: each good one gets the order, each bad one its 4xx."""
    good = {"question": QUESTION, "candidates": TEXTS}
    bodies = [{"json": good}, {"json": good}, {"content": b'{"question": "x", "candidates": ["\\ud800"'}]

    def post(number: int) -> tuple[int, list[int] | None]:
        answer = httpx.post(f"{shared_service.url}/v1/rank", timeout=60, **bodies[number % 3])  # type: ignore[arg-type]
        results = answer.json().get("results")
        return answer.status_code, results and [result["index"] for result in results]

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(post, range(60)))
    assert {status for status, _ in answers[2::3]} == {400}
    fine = [answer for number, answer in enumerate(answers) if number % 3 != 2]
    assert {status for status, _ in fine} == {200}
    assert all(sorted(order or []) == [0, 1, 2, 3, 4] for _, order in fine)


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


def test_metrics_count_what_was_answered(service: Process) -> None:
    """The real exposition text after two answers and one error."""
    with httpx.Client(base_url=service.url) as client:
        for candidates in (TEXTS, TEXTS[:2], []):
            client.post("/v1/rank", json={"question": QUESTION, "candidates": candidates})
        found = samples(client)
    assert found["cerberank_request_phase_seconds_count{model=random-tiny,phase=compute,version=1}"] == 2
    assert found["cerberank_request_candidates_sum{model=random-tiny,version=1}"] == len(TEXTS) + 2
    assert found["cerberank_errors_total{kind=invalid}"] == 1
    assert found["cerberank_ready{}"] == 1
