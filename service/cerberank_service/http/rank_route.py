"""The ranking route: the steps of a request from its body to its response.

body -> read and prepare (worker) -> engine -> render and count (worker) -> response

If a first stage must compute vectors, the engine runs twice, with a worker in between:

body -> read (worker) -> engine: vectors -> score and encode pairs (worker) -> engine: pairs -> render (worker)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from fastapi import Request, Response
from pydantic_core import to_json

from cerberank_service.access.access import Access, Caller, charged
from cerberank_service.call import RankAnswer
from cerberank_service.dialects.dialect import Dialect, FormattedError, errors_in
from cerberank_service.engine.work import Ranked
from cerberank_service.errors import Kind, Refusal, ServiceError
from cerberank_service.http.body import Bodies, Body
from cerberank_service.http.deadlines import HEADER, due, read_header
from cerberank_service.http.disconnect import unless_disconnected
from cerberank_service.http.error_responses import ErrorResponses, request_id_of
from cerberank_service.http.response_headers import LOAD_FORMAT, Load, load_report, server_timing, unread
from cerberank_service.ranking.rank import Question, Ranking
from cerberank_service.ranking.read import Read, Reader, Unread
from cerberank_service.ranking.shadow import Shadow
from cerberank_service.ranking.workers import Workers
from cerberank_service.settings import Settings
from cerberank_service.telemetry.logs import IgnoredFields, log_answer, request_fields
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.telemetry.series import REQUESTS_IN_FLIGHT
from cerberank_service.telemetry.tracing import RequestSpan, Tracing, exemplar
from cerberank_service.versions.registry import Lease, VersionRegistry

CLIENT_GONE = 499
"""Status of a request whose client has disconnected, as in nginx's logs."""


@dataclass(frozen=True, slots=True)
class UnreadBody:
    """A body with one question."""

    reader: Reader
    body: Body

    def read(self) -> Read:
        """Read the body, which is empty after its request has ended. Raises FormattedError."""
        return self.reader(self.body.content)


@dataclass(frozen=True, slots=True)
class Rendered:
    """An answer, with its bytes in the dialect of the request."""

    content: bytes
    answer: RankAnswer
    question: str
    ranked: Ranked
    """The ranking of the distinct candidates, without duplicates."""

    def sent(self, seconds: float) -> Rendered:
        """The answer with its whole time, which ends after its bytes were written."""
        return replace(self, answer=replace(self.answer, timing=replace(self.answer.timing, total=1000.0 * seconds)))


@dataclass(frozen=True, slots=True)
class Origin:
    """The request that a question belongs to."""

    caller: Caller | None
    share: str
    """The owner of its share of the workers (`share_of`)."""
    size: int
    """Bytes of the request's body."""


def share_of(request: Request, caller: Caller | None) -> str:
    """The owner of a request's share of the workers: its API key, or else its client's address."""
    if caller is not None:
        return caller.key.sha256
    return "" if request.client is None else request.client.host


@dataclass(frozen=True, kw_only=True, slots=True)
class RankRoute:
    """Answers ranking requests in the dialects of their paths. Its fields are objects of the service."""

    settings: Settings
    access: Access
    bodies: Bodies
    workers: Workers
    versions: VersionRegistry
    ranking: Ranking
    shadow: Shadow
    metrics: Metrics
    ignored: IgnoredFields
    tracing: Tracing
    errors: ErrorResponses
    load: Callable[[], Load]

    async def __call__(self, request: Request, dialects: tuple[Dialect, ...]) -> Response:
        """The response to a request on a path that `dialects` share; errors become responses too."""
        request_id, trace_id = request_id_of(request), None
        try:
            with self.tracing.request(request.scope["route"].path, request.headers, request_id) as span:
                trace_id = span.trace_id
                return await self._answered(request, dialects, request_id, span)
        except FormattedError as formatted:
            return self.errors.respond(formatted.error, request, formatted.format_error, trace_id=trace_id)
        except Exception as error:  # `respond` logs the reason
            return self.errors.respond(error, request, dialects[0].format_error, trace_id=trace_id)

    async def _answered(
        self, request: Request, dialects: tuple[Dialect, ...], request_id: str, span: RequestSpan
    ) -> Response:
        self.check_room()
        caller = self.identify(request)
        if caller is not None:
            caller.enter()
        timeout_ms = read_header(request.headers.get(HEADER))
        reader = Reader(dialects, self.settings.max_candidates)
        with self.metrics[REQUESTS_IN_FLIGHT].track_inprogress():
            async with self.bodies.received(request) as body:
                self.versions.check_serving()
                unread, received = UnreadBody(reader, body), time.monotonic()
                latest, size = due(received, timeout_ms), len(body.content)
                origin = Origin(caller, share_of(request, caller), size)
                ranked = self.ranked(unread, origin, request_id, received=received, latest=latest)
                rendered = await unless_disconnected(request, ranked)
        if rendered is None:
            return Response(status_code=CLIENT_GONE)
        self.tell(rendered, request, span)
        return Response(
            rendered.content, media_type="application/json", headers=self._headers(request, rendered.answer)
        )

    def tell(self, rendered: Rendered, request: Request, span: RequestSpan) -> None:
        """Add the answer to the request's span, and log it."""
        span.answered(rendered.answer)
        question = rendered.question if self.settings.log_questions else None
        log_answer(rendered.answer, request_fields(request), span.trace_id, question)

    def identify(self, request: Request) -> Caller | None:
        """The caller by its API key; None without a key file. Raises ServiceError (401)."""
        caller = self.access.caller(request.scope["headers"])
        if caller is not None:
            request.state.key = caller.key.name
        return caller

    def check_room(self) -> None:
        """Raises ServiceError (503) while the settings' limit of ranking requests in progress is reached."""
        if self.metrics.count_in_flight() >= self.settings.max_requests:
            text = "too many requests are in progress"
            raise ServiceError(Kind.UNAVAILABLE, text, retry_after=1, refusal=Refusal("connections"))

    async def ranked(
        self,
        unread: Unread,
        origin: Origin,
        request_id: str,
        *,
        received: float,
        latest: float | None,
    ) -> Rendered:
        """Rank and render one question. Raises the error if it is refused.

        The deadline is the question's own or `latest`, whichever is earlier. `received` and `latest` are seconds on
        the monotonic clock. The calling route must have called `check_serving` before.
        """
        trace, caller = exemplar(), origin.caller
        self.versions.check_room()  # before the body is parsed
        with self.versions.lease() as lease:
            prepared = partial(self._prepared, unread, caller, lease, received=received, latest=latest)
            try:
                read, question = await self.workers.read(prepared, size=origin.size, caller=origin.share)
            except FormattedError as refused:
                if caller is not None and isinstance(refused.error, ServiceError):
                    caller.charge_refused(refused.error)
                raise
            with errors_in(read.dialect), charged(caller, question.prepared.tokens) as charge:
                before = question.prepared.tokens
                question, ranked = await self.ranking.rank(question, size=origin.size)
                charge.add(question.prepared.tokens - before)  # the pairs of a first stage's survivors
                rendered = await self.workers.run(partial(self._rendered, read, question, ranked, request_id))
            rendered = rendered.sent(time.monotonic() - received)
            self.metrics.answered(
                rendered.answer,
                trace,
                duplicates=len(question.prepared.pair_of) - len(question.prepared.unique),
                vectors={} if question.texts is None else question.texts.sources,
            )
            self.versions.answered()
            self.shadow.offer(question.call, question.live, rendered.ranked)
            return rendered

    def _prepared(
        self,
        unread: Unread,
        caller: Caller | None,
        lease: Lease,
        *,
        received: float,
        latest: float | None,
    ) -> tuple[Read, Question]:
        """Read a question and prepare it for the engine. Runs in a worker. Raises FormattedError."""
        read = unread.read()
        with errors_in(read.dialect):
            self.ignored.log(read.dialect.tag, read.ignored)
            call = read.call
            if caller is not None:
                call = replace(call, tenant=caller.key.sha256)  # a name could be given to another key later
            own = due(received, call.deadline_ms)
            deadline = latest if own is None else min(own, latest or own)
            return read, self.ranking.prepare(call, lease, received=received, deadline=deadline)

    def _rendered(self, read: Read, question: Question, ranked: Ranked, request_id: str) -> Rendered:
        whole = question.whole(ranked)
        answer = self.ranking.answer(question, whole, request_id)
        return Rendered(to_json(read.dialect.render(answer, read.options)), answer, question.call.question, whole)

    def _headers(self, request: Request, answer: RankAnswer) -> dict[str, str]:
        return {
            "X-Request-Id": answer.request_id,
            "X-Model-Version": f"{answer.model}@{answer.version}",
            **unread(answer),
            **server_timing(answer.timing),
            **load_report(request.headers.get(LOAD_FORMAT), self.load),
        }
