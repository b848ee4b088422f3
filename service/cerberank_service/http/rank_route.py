"""The ranking route: the steps of a request from its body to its response.

body -> read (worker thread, or another process for a large body) -> prepare (the same worker)
-> engine -> render and count (worker) -> response
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from fastapi import Request, Response

from cerberank_service.access.access import Access, Caller, charged
from cerberank_service.call import RankAnswer
from cerberank_service.dialects.dialect import Dialect, ErrorFormat
from cerberank_service.engine.job import Ranked
from cerberank_service.errors import ServiceError
from cerberank_service.http.body import Bodies
from cerberank_service.http.deadlines import HEADER, due, read_header
from cerberank_service.http.disconnect import unless_disconnected
from cerberank_service.http.error_responses import ErrorResponses, request_id_of
from cerberank_service.http.large_bodies import LargeBodies
from cerberank_service.http.large_body import LargeBody
from cerberank_service.http.response_headers import LOAD_FORMAT, Load, load_report, server_timing
from cerberank_service.ranking.rank import Question, Ranking, Rendered
from cerberank_service.ranking.read import Read, Reader
from cerberank_service.ranking.workers import Workers
from cerberank_service.rollout.shadow import Shadow
from cerberank_service.settings import Settings
from cerberank_service.telemetry.logs import log_answer, request_fields
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.telemetry.tracing import RequestSpan, Tracing, exemplar
from cerberank_service.versions.registry import Lease, VersionRegistry

CLIENT_GONE = 499
"""Status of a request whose client has disconnected; the same as in nginx's logs."""


class FormattedError(Exception):
    """An error with the error format of the request's dialect."""

    def __init__(self, error: Exception, format_error: ErrorFormat) -> None:
        """`RankRoute` renders `error` with `format_error`."""
        super().__init__(str(error))
        self.error, self.format_error = error, format_error


@contextmanager
def errors_in(dialect: Dialect) -> Iterator[None]:
    """Wrap every exception of the block in a FormattedError; cancellations pass unchanged."""
    try:
        yield
    except Exception as error:
        raise FormattedError(error, dialect.format_error) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class RankRoute:
    """Answers ranking requests in the dialects of their paths; its fields belong to the service."""

    settings: Settings
    access: Access
    bodies: Bodies
    large_bodies: LargeBodies
    workers: Workers
    versions: VersionRegistry
    ranking: Ranking
    shadow: Shadow
    metrics: Metrics
    tracing: Tracing
    errors: ErrorResponses
    load: Callable[[], Load]

    async def __call__(self, request: Request, dialects: tuple[Dialect, ...]) -> Response:
        """The response to a request on a path that `dialects` share; errors become responses as well."""
        request_id, trace_id = request_id_of(request), None
        format_error = dialects[0].format_error
        try:
            with self.tracing.request(request.scope["route"].path, request.headers, request_id) as span:
                trace_id = span.trace_id
                try:
                    return await self._answered(request, dialects, request_id, span)
                except FormattedError as formatted:
                    format_error = formatted.format_error
                    raise formatted.error from formatted.error.__cause__
        except Exception as error:  # the client gets an error response, the log the reason
            return self.errors.respond(error, request, format_error, trace_id=trace_id)

    async def _answered(
        self, request: Request, dialects: tuple[Dialect, ...], request_id: str, span: RequestSpan
    ) -> Response:
        caller = self.access.caller(request.scope["headers"])
        if caller is not None:
            request.state.key = caller.key.name
            caller.enter()
        timeout_ms = read_header(request.headers.get(HEADER))
        reader = Reader(dialects, self.settings.max_candidates)
        with self.metrics.in_flight.track_inprogress():
            async with self.bodies.received(request) as body:
                rendered = await unless_disconnected(
                    request, self._ranked(body, reader, caller, timeout_ms, request_id)
                )
        if rendered is None:
            return Response(status_code=CLIENT_GONE)
        span.answered(rendered.answer)
        question = rendered.question if self.settings.log_questions else None
        log_answer(rendered.answer, request_fields(request), span.trace_id, question)
        return Response(
            rendered.content, media_type="application/json", headers=self._headers(request, rendered.answer)
        )

    async def _ranked(
        self, body: bytes | LargeBody, reader: Reader, caller: Caller | None, timeout_ms: float | None, request_id: str
    ) -> Rendered:
        received, trace = time.monotonic(), exemplar()
        self.versions.check_room()  # before the body is parsed
        with self.versions.lease() as lease:
            sent = body if isinstance(body, bytes) else await self.large_bodies.read(reader, body)
            question = await self.workers.run(
                lambda: self._prepared(sent, reader, caller, lease, received=received, timeout_ms=timeout_ms)
            )
            with errors_in(question.dialect), charged(caller, question.prepared.pairs.tokens):
                ranked = await self.ranking.rank(question)
                rendered = await self.workers.run(lambda: self._rendered(question, ranked, request_id, trace))
            self.shadow.offer(question.call, question.live, ranked)
            return rendered

    def _prepared(
        self,
        sent: bytes | Read,
        reader: Reader,
        caller: Caller | None,
        lease: Lease,
        *,
        received: float,
        timeout_ms: float | None,
    ) -> Question:
        """The question of a body, or of a large body that was already parsed. For a worker. Raises FormattedError."""
        read = reader(sent) if isinstance(sent, bytes) else sent
        with errors_in(read.dialect):
            if isinstance(read.outcome, ServiceError):
                raise read.outcome
            call, options = read.outcome
            if caller is not None:
                call = replace(call, tenant=caller.key.sha256)  # not the name, which may be given to another key later
            deadline = due(received, call.deadline_ms, timeout_ms)
            return self.ranking.prepare(call, lease, read.dialect, options, received=received, deadline=deadline)

    def _rendered(
        self, question: Question, ranked: Ranked, request_id: str, trace: Mapping[str, str] | None
    ) -> Rendered:
        rendered, prepared = self.ranking.render(question, ranked, request_id), question.prepared
        self.metrics.answered(
            rendered.answer,
            trace,
            duplicates=len(prepared.pair_of) - len(prepared.pairs),
            cached=0 if prepared.known is None else len(prepared.known.rows),
        )
        return rendered

    def _headers(self, request: Request, answer: RankAnswer) -> dict[str, str]:
        return {
            "X-Request-Id": answer.request_id,
            "X-Model-Version": f"{answer.model}@{answer.version}",
            **server_timing(answer.timing),
            **load_report(request.headers.get(LOAD_FORMAT), self.load),
        }
