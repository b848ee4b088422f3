from __future__ import annotations

import asyncio
import errno
import gc
import itertools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.service.asking import busy, held
from tests.service.conftest import Serve
from tests.service.fakes import RAISES, FakeBackend
from tests.service.observe import samples, service_of, wait_until

from cerberank_models.ranking.call import RankCall
from cerberank_service.access.key_file import add_key
from cerberank_service.dialects import cohere
from cerberank_service.dialects.dialect import FormattedError, errors_in
from cerberank_service.errors import ServiceError
from cerberank_service.http import batch_route, rank_route
from cerberank_service.ranking import pipeline
from cerberank_service.settings import Settings
from cerberank_service.versions.registry import MOST_SHORTAGES

QUESTION = {"question": "how?", "candidates": ["b", "a", "b"]}


def test_a_question_that_fails_counts_for_its_version(serve: Serve) -> None:
    client = serve(FakeBackend())
    for candidates, status, failed in (([1, 2], 422, 0), (["a"], 200, 0), ([RAISES], 500, 1)):
        answer = client.post("/v1/rank", json={"question": "how?", "candidates": candidates})
        assert answer.status_code == status
        assert samples(client)["cerberank_failed_questions_total{model=fake-ranker,version=7}"] == failed


class PanicError(BaseException):
    """Stands for pyo3's PanicException, which no Python code can raise."""


def test_a_library_that_panics_is_an_internal_error_like_others(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the dialect's format, and counted; the other questions of a call are answered."""
    original = pipeline.prepare

    def panics(call: RankCall, *given: Any, **named: Any) -> Any:
        if call.question == "panic":
            raise PanicError
        return original(call, *given, **named)

    monkeypatch.setattr(pipeline, "prepare", panics)
    told = client.post("/v1/rerank", json={"model": "fake-ranker", "query": "panic", "documents": ["a"], "top_k": 1})
    assert (told.status_code, list(told.json())) == (500, ["detail"])
    questions = [QUESTION, {**QUESTION, "question": "panic"}, QUESTION]
    entries = client.post("/v1/rank/batch", json={"questions": questions}).raise_for_status().json()["answers"]
    assert [entry["status"] for entry in entries] == [200, 500, 200]
    assert samples(client)["cerberank_errors_total{kind=internal}"] == 2.0
    monkeypatch.setattr(batch_route, "read_batch", lambda *given: (_ for _ in ()).throw(PanicError()))
    whole = client.post("/v1/rank/batch", json={"questions": questions})
    assert (whole.status_code, whole.json()["error"]["kind"]) == (500, "internal")
    assert client.post("/v1/rank", json=QUESTION).status_code == 200


@pytest.mark.parametrize("passes", [asyncio.CancelledError, KeyboardInterrupt, SystemExit])
def test_what_ends_a_request_or_the_process_is_no_error_of_a_library(passes: type[BaseException]) -> None:
    """It keeps its meaning."""
    with pytest.raises(passes), errors_in(cohere.V2):
        raise passes


def test_no_work_per_candidate_happens_on_the_event_loop(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions are prepared and answers are made and rendered in worker threads."""
    seen: dict[str, str] = {}

    def noting(name: str, original: Callable[..., object]) -> Callable[..., object]:
        def call(*given: object, **named: object) -> object:
            seen[name] = threading.current_thread().name
            return original(*given, **named)

        return call

    monkeypatch.setattr(pipeline, "prepare", noting("prepare", pipeline.prepare))
    monkeypatch.setattr(pipeline.Question, "begun", noting("work", pipeline.Question.begun))
    monkeypatch.setattr(pipeline, "answer_of", noting("answer", pipeline.answer_of))
    monkeypatch.setattr(rank_route, "to_json", noting("bytes", rank_route.to_json))
    client = serve(FakeBackend())
    assert client.post("/v1/rank", json=QUESTION).status_code == 200
    assert seen.keys() == {"prepare", "work", "answer", "bytes"}
    assert all(name.startswith("worker") for name in seen.values()), seen


def test_a_question_waits_for_the_engine_off_the_workers(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one worker and a model that stands still, other requests are still read and refused."""
    monkeypatch.setattr(Settings, "encode_workers", 1)
    backend = FakeBackend()
    client = serve(backend)
    thread = threading.Thread(target=client.post, args=("/v1/rank",), kwargs={"json": QUESTION})
    with held(backend):
        thread.start()
        service = service_of(client)
        wait_until(lambda: service.load().queued_tokens > 0)
        assert client.post("/v1/rank", json={"question": "how?"}).status_code == 422
    thread.join()


@pytest.mark.parametrize(
    "body",
    [
        b"[",
        b'{"question": "q", "candidates": ["a"], "model": "unknown"}',
        b'{"question": "q", "candidates": ["explode"]}',
    ],
    ids=["malformed", "unknown model", "internal"],
)
@pytest.mark.parametrize("path", ["/v1/rank", "/v1/rank/batch"])
def test_a_refused_request_leaves_no_cycle_behind(serve: Serve, path: str, body: bytes) -> None:
    """An error in a cycle with its traceback would keep the body of four megabytes until the collector runs."""
    client = serve(FakeBackend(), max_candidates=2)
    body = body if path == "/v1/rank" else b'{"questions": [%s]}' % body
    client.post(path, content=body)
    gc.collect()
    gc.disable()
    logging.disable()  # pytest keeps the errors of log records
    try:
        before = {id(each) for each in gc.get_objects()}
        refused = client.post(path, content=body)
        assert refused.status_code >= 400 or refused.json()["answers"][0]["status"] >= 400
        # A worker's thread may hold the error for a moment after the answer.
        wait_until(
            lambda: (
                not any(
                    type(each) in {ServiceError, FormattedError, RuntimeError} and id(each) not in before
                    for each in gc.get_objects()
                )
            )
        )
    finally:
        gc.enable()
        logging.disable(logging.NOTSET)


def test_requests_beyond_the_limit_are_told_to_come_again(serve: Serve) -> None:
    """The requests in progress are answered, probes do not count, and room that is free again is used."""
    backend = FakeBackend()
    client = serve(backend, max_requests=2)
    with ThreadPoolExecutor(2) as pool:
        with held(backend):
            accepted = [pool.submit(client.post, "/v1/rank", json=QUESTION) for _ in range(2)]
            metrics = service_of(client).metrics
            wait_until(lambda: metrics.count_in_flight() == 2)
            refused = client.post("/v1/rank", json=QUESTION)
            assert client.get("/health/ready").status_code == 200
        assert {each.result(20).status_code for each in accepted} == {200}
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert client.post("/v1/rank", json=QUESTION).status_code == 200


def test_a_question_with_a_deadline_does_not_wait_for_a_model_that_hangs(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused soon after its deadline, in the batch too; one without a deadline waits."""
    monkeypatch.setattr(pipeline, "LATE_SECONDS", 0.0)
    monkeypatch.setattr(pipeline, "LATE_STEPS", 0.0)
    backend = FakeBackend()
    client = serve(backend)
    late = QUESTION | {"deadline_ms": 20}
    with ThreadPoolExecutor(1) as pool:
        with busy(backend, pool.submit, client.post, "/v1/rank", json=QUESTION) as waiting:
            alone = client.post("/v1/rank", json=late)
            (entry,) = client.post("/v1/rank/batch", json={"questions": [late]}).json()["answers"]
            assert not waiting.done()
        assert waiting.result(20).status_code == 200
    assert (alone.status_code, alone.headers["Retry-After"], entry["status"]) == (503, "1", 503)
    assert "deadline" in alone.json()["error"]["message"]
    assert samples(client)["cerberank_refused_requests_total{reason=deadline}"] == 2


def test_a_question_whose_deadline_has_passed_is_not_tokenised_beside_others(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine would refuse it; alone it gets the step that it is due."""
    backend, read = FakeBackend(), []
    client = serve(backend)
    original = pipeline.prepare

    def noting(call: RankCall, *given: Any, **named: Any) -> Any:
        read.append(call.question)
        return original(call, *given, **named)

    monkeypatch.setattr(pipeline, "prepare", noting)
    late = QUESTION | {"question": "late?", "deadline_ms": 0.001}
    with ThreadPoolExecutor(1) as pool:
        with busy(backend, pool.submit, client.post, "/v1/rank", json=QUESTION) as waiting:
            assert client.post("/v1/rank", json=late).status_code == 503
        assert waiting.result(20).status_code == 200
    assert read == ["how?"]
    assert not client.post("/v1/rank", json=late).raise_for_status().json()["complete"]


def test_a_refusal_for_a_text_s_length_costs_the_tokens_that_were_read(serve: Serve, tmp_path: Path) -> None:
    """A quota counts them and so do the offered seconds; a body of another mistake is free."""
    keys = tmp_path / "keys.json"
    headers = {"Authorization": f"Bearer {add_key(keys, 'a', tokens_per_minute=100)}"}
    client = serve(FakeBackend(), keys_file=keys)
    offered = "cerberank_offered_seconds_total{outcome=accepted}"
    before = samples(client)[offered]
    too_long = {"query": "how?", "texts": ["tall " * 60_000], "truncate": False}
    for body, status in (({"query": "how?"}, 422), ({**too_long, "truncate": 3}, 422), (too_long, 422)):
        assert client.post("/rerank", json=body, headers=headers).status_code == status
    found = samples(client)
    assert sum(value for name, value in found.items() if name.startswith("cerberank_key_tokens_total")) > 100
    assert found[offered] > before
    assert client.post("/v1/rank", json=QUESTION, headers=headers).status_code == 429


def test_a_lack_of_memory_or_threads_is_no_fault_of_the_question(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets 503; after many in a row without an answer the process must be restarted, until it answers again."""
    client = serve(FakeBackend())
    errors = itertools.cycle([MemoryError(), RuntimeError("can't start new thread"), OSError(errno.EMFILE, "x")])
    with monkeypatch.context() as broken:

        def fails(*given: Any, **named: Any) -> Any:
            raise next(errors)

        broken.setattr(pipeline, "answer_of", fails)
        for _ in range(MOST_SHORTAGES):
            assert client.get("/health/live").status_code == 200
            refused = client.post("/v1/rank", json=QUESTION)
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
        for path in ("/health/live", "/v2/health/live", "/health/ready"):
            assert client.get(path).status_code == 503
    found = samples(client)
    assert found["cerberank_refused_requests_total{reason=memory}"] == MOST_SHORTAGES
    assert found["cerberank_errors_total{kind=internal}"] == 0
    assert client.post("/v1/rank", json=QUESTION).status_code == 200
    assert client.get("/health/live").status_code == 200
