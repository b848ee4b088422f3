from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.service.asking import asgi, busy, goes_when_it_runs, held
from tests.service.conftest import Serve
from tests.service.fakes import RAISES, FakeBackend
from tests.service.observe import samples, service_of, set_speed, wait_until

from cerberank_service.access.key_file import add_key
from cerberank_service.dialects.native_batch import MOST_QUESTIONS, TOGETHER, BatchResponse
from cerberank_service.ranking.workers import LONG_BYTES
from cerberank_service.versions.registry import VersionRegistry

PATH = "/v1/rank/batch"
HOW = {"question": "how tall is it?", "candidates": ["it is old", "330 metres", "in paris"]}
WHERE = {"question": "where is it?", "candidates": ["in paris", "it is old"], "top_k": 1}


def ask(client: TestClient, *questions: Any, **headers: str) -> list[dict[str, Any]]:
    response = client.post(PATH, json={"questions": questions}, headers=headers).raise_for_status()
    return response.json()["answers"]


def test_each_question_is_answered_as_it_would_be_alone(client: TestClient) -> None:
    """In the order of the request, with ids that begin with the request's."""
    response = client.post(PATH, json={"questions": [HOW, WHERE]}, headers={"X-Request-Id": "mine"}).raise_for_status()
    assert (response.json()["id"], response.headers["X-Request-Id"]) == ("mine", "mine")
    BatchResponse.model_validate(response.json())
    for place, (asked, entry) in enumerate(zip([HOW, WHERE], response.json()["answers"], strict=True)):
        alone = client.post("/v1/rank", json=asked).json()
        assert entry["status"] == 200
        assert entry["answer"]["id"] == f"mine-{place}"
        assert {**entry["answer"], "id": "", "timing_ms": 0} == {**alone, "id": "", "timing_ms": 0}


def test_questions_share_what_stands_beside_them(client: TestClient) -> None:
    """A text is a question alone; what a question has itself, by either name or as null, is stronger."""
    shared = {"candidates": HOW["candidates"], "top_n": 2, "return_text": True}
    own = {"query": "where is it?", "documents": ["in paris", "it is old"], "top_k": None}
    response = client.post(PATH, json={"questions": ["how tall is it?", own], **shared}).raise_for_status()
    first, second = (entry["answer"] for entry in response.json()["answers"])
    alone = client.post("/v1/rank", json=HOW | {"top_k": 2, "return_text": True}).json()
    assert first["results"] == alone["results"]
    assert {result["text"] for result in second["results"]} == {"in paris", "it is old"}


def test_short_questions_are_computed_together(serve: Serve) -> None:
    """Those that wait while the first is computed share its next steps; a long one and a deadline run alone."""
    backend = FakeBackend()
    client = serve(backend)
    short = [WHERE | {"question": f"where is {name}?", "drop_ratio": 0} for name in "abcd"]
    alone = [short[0] | {"deadline_ms": 1e6}, short[0] | {"candidates": ["a" * TOGETHER], "windows": "off"}]
    tokens = client.post("/v1/rank", json=short[0]).json()["usage"]["tokens"]
    backend.runs.clear()
    with ThreadPoolExecutor(1) as pool:
        with held(backend):
            pending = pool.submit(ask, client, *short, *alone)
            assert backend.entered.wait(20)
            wait_until(lambda: samples(client)["cerberank_queued_tokens{}"] == 4 * tokens)
        assert [entry["status"] for entry in pending.result(20)] == [200] * 6
    runs = [pairs for stage, pairs in backend.runs if stage == 0]
    assert (sum(runs[:-2]), runs[-2:]) == (8, [2, 1])
    assert len(runs) <= 4


def test_one_that_is_refused_has_an_error_in_its_place(serve: Serve) -> None:
    """Whatever is wrong with it; the others are answered, and each is counted as a request of its own."""
    client = serve(FakeBackend(), max_candidates=9)
    before = samples(client)
    bad = [{"question": "q"}, 3, HOW | {"topk": 1}, HOW | {"model": "another"}, HOW | {"candidates": [RAISES]}]
    answers = ask(client, *bad, WHERE, **{"X-Request-Id": "mine"})
    assert [entry["status"] for entry in answers] == [422, 422, 422, 404, 500, 200]
    assert answers[0]["error"] == {"kind": "invalid", "message": "candidates: is required", "request_id": "mine-0"}
    assert "topk: is not a field" in answers[2]["error"]["message"]
    after = samples(client)
    assert after["cerberank_errors_total{kind=invalid}"] - before["cerberank_errors_total{kind=invalid}"] == 3
    assert after["cerberank_requests_in_flight{}"] == 0


def test_windows_of_all_questions_are_bounded_as_those_of_one(serve: Serve) -> None:
    """Beside its candidates each that is not cut has an equal share of what is left; alone it has all.

    Two texts have equally many, so that they leave the fifth of the first case.
    """
    backend = FakeBackend()
    client = serve(backend, max_candidates=11)
    long = [f"{name} is tall and old. " * 60 for name in "abc"]
    windowed, cut = HOW | {"drop_ratio": 0}, WHERE | {"windows": "off"}
    for questions, rows in (
        ([windowed | {"candidates": long[:2]}, windowed | {"candidates": long[2:]}, cut], [4, 4, 2]),
        ([windowed | {"candidates": long[:1]}, cut], [9, 2]),
        ([windowed | {"candidates": long[:1]}], [11]),
    ):
        backend.runs.clear()
        assert [entry["status"] for entry in ask(client, *questions)] == [200] * len(questions)
        assert sum(pairs for stage, pairs in backend.runs if stage == 0) == sum(rows)


def test_a_quota_counts_every_question(serve: Serve, tmp_path: Path) -> None:
    """Those beyond it get 429 and a time to wait; no key, no answer at all."""
    keys = tmp_path / "keys.json"
    secret = add_key(keys, "a", requests_per_minute=2)
    client = serve(FakeBackend(), keys_file=keys)
    answers = ask(client, WHERE, WHERE, WHERE, Authorization=f"Bearer {secret}")
    assert [entry["status"] for entry in answers] == [200, 200, 429]
    assert answers[2]["retry_after"] >= 1
    assert client.post(PATH, json={"questions": [WHERE]}).status_code == 401


def test_a_deadline_is_a_question_s_own(serve: Serve) -> None:
    """A late one is incomplete, the one beside it complete."""
    late, other = ask(serve(FakeBackend()), HOW | {"deadline_ms": 0.001}, WHERE)
    assert (late["answer"]["complete"], other["answer"]["complete"]) == (False, True)


def test_the_header_is_a_deadline_for_all_questions(serve: Serve, tmp_path: Path) -> None:
    """Once it has passed, the first has had its step, and the others take none and nothing of a quota."""
    keys, backend = tmp_path / "keys.json", FakeBackend()
    secret = add_key(keys, "a", requests_per_minute=2)
    client, headers = serve(backend, keys_file=keys), {"Authorization": f"Bearer {secret}"}
    backend.runs.clear()
    first, *others = ask(client, HOW, WHERE, WHERE, **headers, **{"X-Request-Timeout-Ms": "0.001"})
    assert not first["answer"]["complete"]
    assert [(entry["status"], entry["retry_after"]) for entry in others] == [(503, 1)] * 2
    assert "deadline" in others[0]["error"]["message"]
    assert backend.runs == [(0, 3)]
    assert ask(client, WHERE, **headers)[0]["status"] == 200


def test_each_question_is_admitted_on_its_own(serve: Serve) -> None:
    """The one of low priority would wait for the whole backlog and is refused, the other one is answered."""
    backend = FakeBackend()
    client = serve(backend, step_tokens=128)
    large = HOW | {"candidates": [f"{number} {'a' * 30}" for number in range(100)]}
    tokens = client.post("/v1/rank", json=large).json()["usage"]["tokens"]
    set_speed(client, 60.0 / tokens)
    with ThreadPoolExecutor(2) as pool:
        with busy(backend, pool.submit, client.post, "/v1/rank", json=large):
            pending = pool.submit(ask, client, WHERE | {"priority": 999}, WHERE)
            wait_until(lambda: samples(client)["cerberank_errors_total{kind=unavailable}"] == 1)
        low, high = pending.result(20)
    assert (low["status"], high["status"]) == (503, 200)
    assert low["retry_after"] >= 1


def test_every_question_of_a_long_body_is_read_as_a_long_one(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of the whole body decides for each question, and all of them belong to the same caller."""
    client = serve(FakeBackend())
    workers = service_of(client).workers
    seen, read = [], workers.read

    def noting(work: Callable[[], Any], *, size: int, caller: str) -> Any:
        seen.append((size > LONG_BYTES, caller))
        return read(work, size=size, caller=caller)

    monkeypatch.setattr(workers, "read", noting)
    ask(client, WHERE, HOW | {"candidates": ["a" * LONG_BYTES]})
    ask(client, WHERE)
    assert seen == [(True, "testclient")] * 3 + [(False, "testclient")] * 2


def test_a_call_alone_is_not_refused_for_the_wait_that_it_makes(serve: Serve) -> None:
    """Each question takes half a second of the model, and the last waits for eleven others: longer than the bound."""
    client = serve(FakeBackend())
    set_speed(client, 0.5 / client.post("/v1/rank", json=HOW).json()["usage"]["tokens"])
    questions = [HOW | {"question": f"how tall is {name}?", "drop_ratio": 0} for name in "abcdefghijkl"]
    assert [entry["status"] for entry in ask(client, *questions)] == [200] * 12


@pytest.mark.parametrize("end", [lambda versions: versions.drain(True), lambda versions: versions.refuse()])
def test_a_call_that_has_begun_is_answered_in_full(serve: Serve, end: Callable[[VersionRegistry], None]) -> None:
    """Though the replica drains or shuts down meanwhile; a later call is refused as a whole, to be sent again."""
    backend = FakeBackend()
    client = serve(backend)
    with ThreadPoolExecutor(1) as pool:
        with busy(backend, pool.submit, ask, client, HOW, WHERE) as pending:
            end(service_of(client).versions)
        assert [entry["status"] for entry in pending.result(20)] == [200, 200]
    refused = client.post(PATH, json={"questions": [WHERE]})
    assert refused.status_code == 503
    assert refused.headers["Retry-After"]


def test_a_call_is_one_request_in_progress_from_its_first_byte(serve: Serve) -> None:
    """Bodies that arrive slowly count towards the limit as well, and no question is refused for the call's place."""
    client = serve(FakeBackend(), max_requests=1)
    metrics = service_of(client).metrics
    in_progress = []
    sent = [{"type": "http.request", "body": json.dumps({"questions": [HOW, WHERE]}).encode(), "more_body": False}]

    async def receive() -> dict[str, Any]:
        in_progress.append(metrics.count_in_flight())
        if not sent:
            await asyncio.Event().wait()
        return sent.pop()

    messages = asgi(client, PATH, receive)
    assert set(in_progress) == {1}
    assert [entry["status"] for entry in json.loads(messages[1]["body"])["answers"]] == [200, 200]
    assert metrics.count_in_flight() == 0


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        ({"questions": []}, 422, "questions: must have at least 1 item, not 0"),
        ({"questions": [{}] * (MOST_QUESTIONS + 1)}, 422, "questions: 65 are more than the limit of 64"),
        ({"questions": [HOW], "top_n": 0}, 422, "top_n: must be greater than or equal to 1"),
        ({"questions": [HOW], "candidates": "abc"}, 422, "candidates: must be a list, such as"),
        ({"questions": [HOW], "modle": "m"}, 422, "modle: is not a field of this request; is model meant?"),
        ({"questions": [WHERE] * 6}, 422, "12 candidates in all, shared ones counted for each question, are more"),
        ({"questions": ["a", "b"], "documents": ["c"] * 6}, 422, "12 candidates in all"),
        ([HOW], 422, "object"),
    ],
)
def test_a_call_that_cannot_be_read_is_refused_as_a_whole(serve: Serve, content: Any, status: int, said: str) -> None:
    """With the native error body."""
    refused = serve(FakeBackend(), max_candidates=10).post(PATH, json=content)
    assert refused.status_code == status
    assert said in refused.json()["error"]["message"]


def test_a_client_that_goes_frees_all_questions(serve: Serve) -> None:
    """The engine gives up those that it holds."""
    backend = FakeBackend()
    client = serve(backend)
    ran = len(backend.runs)
    alone = WHERE | {"deadline_ms": 1e6}
    with held(backend):
        messages = asgi(client, PATH, goes_when_it_runs(backend, {"questions": [HOW, alone]}))
    assert messages[0]["status"] == 499
    wait_until(lambda: samples(client)["cerberank_queued_tokens{}"] == 0)
    assert samples(client)["cerberank_cancelled_requests_total{model=fake-ranker,version=7}"] == 1
    assert backend.runs[ran:] == [(0, 3)]
