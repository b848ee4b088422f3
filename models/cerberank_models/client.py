"""Clients of a running service: `POST /v1/rank` with typed answers and errors, retries and time-outs."""

from __future__ import annotations

import asyncio
import math
import random
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self, Unpack

import httpx

from cerberank_models.answer import Answer
from cerberank_models.connection import open_async_client, open_client
from cerberank_models.request import Questions, RankRequest, ServiceOptions, Texts

FIRST_WAIT_SECONDS = 0.1
"""The wait before the first retry if the service states none; it doubles with each retry."""
TRANSIENT = frozenset({429, 502, 503, 504})
"""Statuses after which a retry may succeed; 502 and 504 come from a proxy in front of the service."""


class RequestError(RuntimeError):
    """The service answered with an error. The base class of more specific errors; itself used for internal errors."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        kind: str = "",
        request_id: str = "",
        retry_after: float | None = None,
    ) -> None:
        """The message comes from the service and says what to change."""
        super().__init__(message)
        self.status = status
        """The HTTP status; None if there was no answer."""
        self.kind = kind
        """The service's name for the kind of error, such as `invalid` (docs/api.md)."""
        self.request_id = request_id
        """The id under which the service has logged the request."""
        self.retry_after = retry_after
        """Seconds after which the service expects to have room; None if waiting does not help."""


class InvalidRequestError(RequestError, ValueError):
    """The request is invalid (400, 413, 422): a retry will not help.

    An argument that no service would accept is refused before anything is sent; `status` is then None.
    """


class UnauthorizedError(RequestError):
    """The key is missing or wrong (401, 403)."""


class NotFoundError(RequestError):
    """There is no such model, version or path (404)."""


class UnavailableError(RequestError):
    """After all retries the service was still overloaded, or the key's quota exhausted (429, 502, 503, 504)."""


class ConnectionFailedError(RequestError):
    """There was no answer: the service cannot be reached, or the time-out has passed."""


ERROR_OF_STATUS: Mapping[int, type[RequestError]] = {
    400: InvalidRequestError,
    401: UnauthorizedError,
    403: UnauthorizedError,
    404: NotFoundError,
    413: InvalidRequestError,
    422: InvalidRequestError,
    **dict.fromkeys(TRANSIENT, UnavailableError),
}


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits of a client's calls: their time-out in seconds, which is infinite without one, and their retries."""

    seconds: float
    retries: int

    @classmethod
    def of(cls, timeout: float | None, retries: int) -> _Limits:
        """The limits as users state them. Raises ValueError."""
        seconds = math.inf if timeout is None else float(timeout)
        if not seconds > 0:
            raise ValueError(f"timeout must be a number of seconds above 0, or None for no limit, not {timeout}")
        if retries < 0:
            raise ValueError(f"retries must be at least 0, not {retries}")
        return cls(seconds, int(retries))

    def call(self, path: str, body: Mapping[str, Any] | None = None) -> _Call:
        """A call that begins now."""
        return _Call(path, body, end=time.monotonic() + self.seconds, retries=self.retries)

    def batch(self, questions: Questions, candidates: Texts | None, options: ServiceOptions) -> _BatchCall:
        """A call with several questions that begins now. Raises InvalidRequestError."""
        with _checked():
            requests = RankRequest.each_of(questions, candidates, **options)
        end = time.monotonic() + self.seconds
        return _BatchCall(
            "/v1/rank/batch", None, end=end, retries=self.retries, answered=not requests, requests=requests
        )


@dataclass(slots=True)
class _Call:
    """One call with its retries. A client sends what `request` says, gives the result to `read` or `fail`, and waits.

    `end` is the end of the time-out, by `time.monotonic`, and `retries` the number that is left. `backoff` are the
    seconds to wait after the next failure if the service states none. `values` are the body of the answer, once it is
    `answered`.
    """

    path: str
    body: Mapping[str, Any] | None
    end: float
    retries: int
    backoff: float = FIRST_WAIT_SECONDS
    wait: float = 0.0
    answered: bool = False
    values: dict[str, Any] = field(default_factory=dict)

    def request(self) -> dict[str, Any]:
        """The next request, as arguments of httpx. Raises ConnectionFailedError if no time is left."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise ConnectionFailedError("the time-out was over before the service had answered")
        timeout = None if math.isinf(left) else left
        return {"method": "POST" if self.body else "GET", "url": self.path, "json": self.body, "timeout": timeout}

    def read(self, response: httpx.Response) -> None:
        """Set `values`, or `wait` after a failure that may pass. Raises RequestError for a final failure."""
        if response.status_code == httpx.codes.OK:
            self.values = response.json()
            self.answered = True
        else:
            self.fail(_failure(response))

    def fail(self, failure: RequestError) -> None:
        """Set `wait` after a failure that may pass. Raises the failure if it is final."""
        self.wait = failure.retry_after or self.backoff * random.uniform(1.0, 1.5)
        transient = isinstance(failure, UnavailableError | ConnectionFailedError)
        if not transient or self.retries == 0 or time.monotonic() + self.wait >= self.end:
            raise failure
        self.retries -= 1
        self.backoff *= 2


MOST_QUESTIONS, MOST_CANDIDATES, MOST_CHARACTERS = 64, 10_000, 1_000_000
"""The most questions that a service takes in one request, and the most candidates and characters by default (4 MiB)."""


@dataclass(slots=True)
class _BatchCall(_Call):
    """A call with several questions. Those of `requests` without an answer are sent, again if the failure may pass."""

    requests: Sequence[RankRequest] = ()
    answers: dict[int, Answer] = field(default_factory=dict)
    """The answers by the places of their questions."""

    def request(self) -> dict[str, Any]:
        """The next request, whose fields that all its questions share are sent once."""
        bodies = [self.requests[place].body() for place in self._next]
        common = {
            name: value
            for name, value in bodies[0].items()
            if name != "question" and all(name in body and body[name] == value for body in bodies)
        }
        own = [{name: value for name, value in body.items() if name not in common} for body in bodies]
        self.body = {**common, "questions": own}
        return super(_BatchCall, self).request()

    def read(self, response: httpx.Response) -> None:
        """Keep the answers; see `_Call.read`."""
        super(_BatchCall, self).read(response)
        if not self.answered:
            return
        self.wait, failure = 0.0, None
        for place, entry in zip(self._next, self.values["answers"], strict=True):
            if "error" in entry:
                error = _error(entry["status"], entry["error"], entry.get("retry_after"), f"questions[{place}]: ")
                # One that a retry cannot help ends the call.
                failure = error if failure is None or isinstance(failure, UnavailableError) else failure
            else:
                self.answers[place] = _answer(entry["answer"], self.requests[place])
        self.answered = len(self.answers) == len(self.requests)
        if failure is not None:
            self.fail(failure)

    @property
    def _next(self) -> list[int]:
        """The places of the questions to send next: as many as a service takes by default, at least one."""
        places: list[int] = []
        candidates = characters = 0
        for place, request in enumerate(self.requests):
            if place not in self.answers:
                candidates += len(request.candidates)
                characters += request.characters
                full = candidates > MOST_CANDIDATES or characters > MOST_CHARACTERS
                if len(places) == MOST_QUESTIONS or (places and full):
                    break
                places.append(place)
        return places


def _failure(response: httpx.Response) -> RequestError:
    """The error for an answer whose status is not 200."""
    try:
        error = response.json()["error"]
        fields = {"message": error["message"], "kind": error["kind"], "request_id": error.get("request_id", "")}
    except (ValueError, KeyError, TypeError):  # the answer may be an error page of a proxy
        fields = {"message": f"{response.status_code} {response.reason_phrase}"}
    after = response.headers.get("retry-after", "")
    return _error(response.status_code, fields, float(after) if after.isdecimal() else None)


def _error(status: int, fields: Mapping[str, Any], retry_after: float | None, place: str = "") -> RequestError:
    return ERROR_OF_STATUS.get(status, RequestError)(
        place + fields["message"],
        status=status,
        kind=fields.get("kind", ""),
        request_id=fields.get("request_id", ""),
        retry_after=retry_after,
    )


def _no_answer(url: httpx.URL, error: httpx.TransportError) -> ConnectionFailedError:
    place = url.copy_with(userinfo=b"")  # without a password
    return ConnectionFailedError(
        f"{place} gave no answer: {error or type(error).__name__}; is the service running there?"
    )


def _request(question: str, candidates: Texts, options: ServiceOptions) -> RankRequest:
    """The request, checked before it is sent, as `Ranker.rank` checks it. Raises InvalidRequestError."""
    with _checked():
        return RankRequest.of(question, candidates, **options)


@contextmanager
def _checked() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise InvalidRequestError(str(error), kind="invalid") from None


def _answer(values: Mapping[str, Any], request: RankRequest) -> Answer:
    """The answer with the texts of the request, so that the service does not need to return them."""
    answer = Answer.from_json(values)
    texts = request.texts()
    return replace(answer, results=tuple(replace(result, text=texts[result.index].text) for result in answer))


class Client:
    """A client of a service, for any number of threads. Close it, or use it in a `with` block."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        timeout: float | None = 30.0,
        retries: int = 3,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`timeout` limits a call including its retries, in seconds; None sets no limit.

        Blanks around `api_key` are left out, and an empty key is none. `verify` and `transport` are passed to httpx.
        The proxy is that of HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, except for this machine and the hosts of NO_PROXY.

        After 429, 502, 503, 504 or a lost connection, a call is retried up to `retries` times, each time after the
        seconds that the service states in `Retry-After`. Raises ValueError for an invalid URL, key, proxy or limit.
        """
        self._limits = _Limits.of(timeout, retries)
        self._http = open_client(url, api_key=api_key, verify=verify, transport=transport)

    def rank(self, question: str, candidates: Texts, **options: Unpack[ServiceOptions]) -> Answer:
        """Rank the candidates of one question, best first.

        Options, with their meaning and defaults in `POST /v1/rank` (docs/api.md): `model`, `top_k`, `min_score`,
        `min_precision`, `drop_ratio`, `lexical_ratio`, `deadline_ms`, `latency_target_ms`, `windows`, `priority`,
        `instruction` and `return_heads`.

        Raises InvalidRequestError, UnauthorizedError, NotFoundError, UnavailableError or ConnectionFailedError, or
        their base class RequestError for an internal error of the service.
        """
        request = _request(question, candidates, options)
        return _answer(self._ask(self._limits.call("/v1/rank", request.body())), request)

    def rank_batch(
        self, questions: Questions, candidates: Texts | None = None, **options: Unpack[ServiceOptions]
    ) -> list[Answer]:
        """An answer to each question, in their order, by requests of up to 64 questions (`POST /v1/rank/batch`).

        A question is a text, or a dict with the fields of `POST /v1/rank`: `question`, and its own `candidates` and
        options where it has other ones than the call. Only questions for which there was no room are sent again.

        Raises the errors of `rank`. The message begins with the place of the question, such as `questions[3]: `.
        """
        call = self._limits.batch(questions, candidates, options)
        self._ask(call)
        return [call.answers[place] for place in range(len(call.requests))]

    def models(self) -> list[dict[str, Any]]:
        """The service's models, as `GET /v1/models` describes them. Raises the same errors as `rank`."""
        models: list[dict[str, Any]] = self._ask(self._limits.call("/v1/models"))["models"]
        return models

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        self.close()

    def _ask(self, call: _Call) -> dict[str, Any]:
        """The body of the answer."""
        while not call.answered:
            time.sleep(call.wait)
            try:
                call.read(self._http.request(**call.request()))
            except httpx.TransportError as error:
                call.fail(_no_answer(self._http.base_url, error))
        return call.values


class AsyncClient:
    """A client of a service for asyncio. Close it with `aclose`, or use it in an `async with` block."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        timeout: float | None = 30.0,
        retries: int = 3,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """The arguments are those of `Client`."""
        self._limits = _Limits.of(timeout, retries)
        self._http = open_async_client(url, api_key=api_key, verify=verify, transport=transport)

    async def rank(self, question: str, candidates: Texts, **options: Unpack[ServiceOptions]) -> Answer:
        """See `Client.rank`."""
        request = _request(question, candidates, options)
        return _answer(await self._ask(self._limits.call("/v1/rank", request.body())), request)

    async def rank_batch(
        self, questions: Questions, candidates: Texts | None = None, **options: Unpack[ServiceOptions]
    ) -> list[Answer]:
        """See `Client.rank_batch`."""
        call = self._limits.batch(questions, candidates, options)
        await self._ask(call)
        return [call.answers[place] for place in range(len(call.requests))]

    async def models(self) -> list[dict[str, Any]]:
        """See `Client.models`."""
        models: list[dict[str, Any]] = (await self._ask(self._limits.call("/v1/models")))["models"]
        return models

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        """The client itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self.aclose()

    async def _ask(self, call: _Call) -> dict[str, Any]:
        """The body of the answer."""
        while not call.answered:
            await asyncio.sleep(call.wait)
            try:
                call.read(await self._http.request(**call.request()))
            except httpx.TransportError as error:
                call.fail(_no_answer(self._http.base_url, error))
        return call.values
