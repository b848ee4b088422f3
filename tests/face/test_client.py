"""The clients against answers that a service or a proxy may give; `tests/e2e/test_python.py` has a real service."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from cerberank import (
    Answer,
    AsyncClient,
    Client,
    ConnectionFailedError,
    InvalidRequestError,
    NotFoundError,
    RequestError,
    UnauthorizedError,
    UnavailableError,
)

ANSWER = {
    "id": "1",
    "model": "m",
    "version": "2",
    "drop_schedule": [],
    "complete": True,
    "results": [{"index": 0, "score": 0.5, "stage": 0, "truncated": False}],
    "usage": {"candidates": 1, "tokens": 5},
    "timing_ms": {"total": 1.0},
    "warnings": [],
}
Ask = Callable[..., Answer]
Handler = Callable[[httpx.Request], httpx.Response]


def by_client(handler: Handler, url: str = "http://service", **options: Any) -> Answer:
    with Client(url, api_key="k", transport=httpx.MockTransport(handler), **options) as client:
        return client.rank("q", ["a"])


def by_async_client(handler: Handler, url: str = "http://service", **options: Any) -> Answer:
    async def ask() -> Answer:
        transport = httpx.MockTransport(handler)
        async with AsyncClient(url, api_key="k", transport=transport, **options) as client:
            return await client.rank("q", ["a"])

    return asyncio.run(ask())


CLIENTS = pytest.mark.parametrize("ask", [by_client, by_async_client])


def error(status: int, **headers: str) -> httpx.Response:
    content = {"error": {"kind": "some", "message": "change this", "request_id": "r1"}}
    return httpx.Response(status, json=content, headers=headers)


@CLIENTS
def test_a_request_has_the_key_and_no_default(ask: Ask) -> None:
    """Options that nobody chose are left out, so that the service's defaults apply; the text is in the answer."""
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=ANSWER)

    answer = ask(handler)
    assert (answer[0].text, answer[0].score, answer.timing_ms["total"]) == ("a", 0.5, 1.0)
    assert seen[0].headers["authorization"] == "Bearer k"
    assert json.loads(seen[0].content) == {"question": "q", "candidates": ["a"]}


@CLIENTS
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequestError),
        (401, UnauthorizedError),
        (404, NotFoundError),
        (413, InvalidRequestError),
        (422, InvalidRequestError),
        (500, RequestError),
    ],
)
def test_an_error_that_stays_is_raised_at_once(ask: Ask, status: int, kind: type[RequestError]) -> None:
    """With the service's message, and after one request."""
    calls: list[int] = []

    def handler(request: httpx.Request) -> httpx.Response:
        calls.append(1)
        return error(status)

    with pytest.raises(kind, match="change this") as raised:
        ask(handler)
    assert type(raised.value) is kind
    assert (raised.value.status, raised.value.kind, raised.value.request_id) == (status, "some", "r1")
    assert len(calls) == 1


@CLIENTS
def test_an_answer_without_values_ends_the_call(ask: Ask) -> None:
    """A proxy may answer `null` with status 200; the question is not sent again."""
    answers = [httpx.Response(200, content=b"null")]
    with pytest.raises(TypeError):
        ask(lambda request: answers.pop())


@CLIENTS
@pytest.mark.parametrize(("status", "headers"), [(503, {"Retry-After": "0"}), (429, {}), (502, {})])
def test_a_refusal_is_asked_again(ask: Ask, status: int, headers: dict[str, str]) -> None:
    """Two refusals, then an answer; a proxy's page is a refusal as well."""
    refusals = [lambda: httpx.Response(status, text="<html>", headers=headers), lambda: error(status, **headers)]
    assert ask(lambda request: refusals.pop()() if refusals else httpx.Response(200, json=ANSWER)).model == "m"


@CLIENTS
def test_retries_end(ask: Ask) -> None:
    """The last refusal is raised after so many retries, or at once if the wait is longer than the time-out."""
    calls: list[int] = []

    def handler(request: httpx.Request) -> httpx.Response:
        calls.append(1)
        return error(503, **{"Retry-After": "0" if len(calls) < 3 else "60"})

    with pytest.raises(UnavailableError) as raised:
        ask(handler, retries=1)
    assert len(calls) == 2
    with pytest.raises(UnavailableError) as raised:
        ask(handler, timeout=5.0)
    assert (len(calls), raised.value.retry_after) == (3, 60.0)


@CLIENTS
def test_a_lost_connection_is_tried_again(ask: Ask) -> None:
    """Ranking changes nothing in the service, so that a question may be asked twice; a password is never shown."""
    failures: list[Exception] = [httpx.ReadError("reset"), httpx.ConnectError("refused")]

    def handler(request: httpx.Request) -> httpx.Response:
        if failures:
            raise failures.pop()
        return httpx.Response(200, json=ANSWER)

    assert ask(handler).version == "2"
    failures += [httpx.ConnectTimeout("late")]
    with pytest.raises(
        ConnectionFailedError, match=r"^http://service gave no answer: late; is the service running there\?$"
    ):
        ask(handler, url="http://user:password@service", retries=0)


@CLIENTS
def test_no_time_out_is_no_limit(ask: Ask) -> None:
    """None waits for ever; a wrong limit is refused when the client is made, before any request."""
    assert ask(lambda request: httpx.Response(200, json=ANSWER), timeout=None).model == "m"
    for wrong in ({"timeout": 0.0}, {"timeout": float("nan")}, {"retries": -1}):
        with pytest.raises(ValueError, match=r"^(timeout|retries) must be"):
            ask(lambda request: pytest.fail("a request was sent"), **wrong)


def answered(*statuses: int) -> list[dict[str, Any]]:
    """The entries of a batch; 200 is answered, another status an error."""
    problem = {"error": {"kind": "some", "message": "change this", "request_id": "r1"}}
    return [
        {"status": status, "answer": ANSWER} if status == 200 else {"status": status, "retry_after": 0, **problem}
        for status in statuses
    ]


def batch(*replies: list[int] | int, **options: Any) -> tuple[list[Answer], list[dict[str, Any]]]:
    """The answers of both clients to questions that the service answers so in turn, and the bodies that it saw."""
    seen: list[dict[str, Any]] = []
    waiting = iter(replies * 2)

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        reply = next(waiting)
        return httpx.Response(200, json={"answers": answered(*reply)}) if isinstance(reply, list) else error(reply)

    async def ask() -> list[Answer]:
        async with AsyncClient(transport=httpx.MockTransport(handler)) as client:
            return await client.rank_batch(**options)

    with Client(transport=httpx.MockTransport(handler)) as client:
        answers = client.rank_batch(**options)
    assert asyncio.run(ask()) == answers
    assert seen[: len(replies)] == seen[len(replies) :]
    return answers, seen[: len(replies)]


def test_a_batch_sends_once_what_its_questions_share() -> None:
    """And has the texts of each question's own candidates in the answers."""
    questions: Any = ["q", {"question": "r", "candidates": ["b"], "top_k": 2}]
    answers, (body,) = batch([200, 200], questions=questions, candidates=["a"], model="m")
    assert [answer[0].text for answer in answers] == ["a", "b"]
    own = [{"question": "q", "candidates": ["a"]}, {"question": "r", "candidates": ["b"], "top_k": 2}]
    assert body == {"model": "m", "questions": own}
    _, (body,) = batch([200, 200], questions=["q", "r"], candidates=["a"])
    assert body == {"candidates": ["a"], "questions": [{"question": "q"}, {"question": "r"}]}


def test_only_questions_without_an_answer_are_sent_again() -> None:
    """After an answer in part, and after a whole request was refused."""
    answers, bodies = batch(503, [200, 503, 200], [200], questions=["q"] * 3, candidates=["a"])
    assert len(answers) == 3
    assert [len(body["questions"]) for body in bodies] == [3, 3, 1]


def test_a_question_that_no_retry_helps_ends_the_batch() -> None:
    with pytest.raises(InvalidRequestError, match=r"^questions\[2\]: change this$") as raised:
        batch([200, 503, 422], questions=["a", "b", "c"], candidates=["d"])
    assert (raised.value.status, raised.value.request_id) == (422, "r1")


def test_a_long_batch_is_several_requests() -> None:
    """Each has as many questions as a service takes."""
    answers, bodies = batch([200] * 64, [200] * 6, questions=["q"] * 70, candidates=["a"])
    assert (len(answers), [len(body["questions"]) for body in bodies]) == (70, [64, 6])
    _, bodies = batch([200], [200], questions=["q"] * 2, candidates=["a"] * 5001)
    assert [len(body["questions"]) for body in bodies] == [1, 1]
