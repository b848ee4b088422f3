"""The ranking route: the steps of a request from its body to its response.

body -> read and prepare (worker) -> engine -> render and count (worker) -> response

If a first stage must compute vectors, the engine runs twice, with a worker in between:

body -> read (worker) -> engine: vectors -> score and encode pairs (worker) -> engine: pairs -> render (worker)
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial

from fastapi import Request, Response
from pydantic_core import to_json

from cerberank_service.access.access import charge_tokens
from cerberank_service.call import RankAnswer
from cerberank_service.dialects.dialect import Dialect, FormattedError, errors_in
from cerberank_service.engine.work import Ranked
from cerberank_service.errors import ServiceError
from cerberank_service.http.accept import AcceptedRequest, accept, unless_disconnected
from cerberank_service.http.body import Bodies, Body
from cerberank_service.http.error_responses import ErrorResponses, request_id_of
from cerberank_service.http.response_headers import LOAD_FORMAT, load_report, server_timing, unread_texts
from cerberank_service.ranking.rank import Question
from cerberank_service.ranking.read import Read, Reader, Unread
from cerberank_service.service import Service
from cerberank_service.telemetry.logs import IgnoredFields, log_answer, request_fields
from cerberank_service.telemetry.tracing import RequestSpan, exemplar
from cerberank_service.versions.registry import Lease

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
class RankRoute:
    """Answers ranking requests in the dialects of their paths."""

    service: Service
    errors: ErrorResponses
    bodies: Bodies
    ignored: IgnoredFields = field(default_factory=IgnoredFields)

    async def __call__(
        self, request: Request, dialects: tuple[Dialect, ...], *, json_bytes: int | None = None
    ) -> Response:
        """The response to a request on a path that `dialects` share; errors become responses too.

        The first `json_bytes` of the body are JSON, by default all.
        """
        request_id, trace_id = request_id_of(request), None
        try:
            with self.service.tracing.request(request.scope["route"].path, request.headers, request_id) as span:
                trace_id = span.trace_id
                most = self.service.settings.max_candidates
                reader = Reader(dialects, most, request.path_params, json_bytes)
                return await self._answered(request, reader, request_id, span)
        except FormattedError as formatted:
            return self.errors.respond(formatted.error, request, formatted.format_error, trace_id=trace_id)
        except Exception as error:  # `respond` logs the reason
            return self.errors.respond(error, request, dialects[0].format_error, trace_id=trace_id)

    async def _answered(self, request: Request, reader: Reader, request_id: str, span: RequestSpan) -> Response:
        async with accept(self.service, self.bodies, request) as accepted:
            unread = UnreadBody(reader, accepted.body)
            ranked = self.ranked(unread, accepted, request_id, received=accepted.received)
            rendered = await unless_disconnected(request, ranked)
        if rendered is None:
            return Response(status_code=CLIENT_GONE)
        self.log(rendered, request, span)
        headers = {
            "X-Request-Id": request_id,
            "X-Model-Version": f"{rendered.answer.model}@{rendered.answer.version}",
            **unread_texts(rendered.answer),
            **server_timing(rendered.answer.timing),
            **load_report(request.headers.get(LOAD_FORMAT), self.service.load),
        }
        return Response(rendered.content, media_type="application/json", headers=headers)

    def log(self, rendered: Rendered, request: Request, span: RequestSpan) -> None:
        """Log the answer, and add it to the request's span."""
        span.answered(rendered.answer)
        question = rendered.question if self.service.settings.log_questions else None
        log_answer(rendered.answer, request_fields(request), span.trace_id, question)

    async def ranked(self, unread: Unread, accepted: AcceptedRequest, request_id: str, *, received: float) -> Rendered:
        """Rank and render one question of a request, and count its answer. Raises the error if it is refused.

        `received` is the time from which its own deadline runs.
        """
        service, trace, caller = self.service, exemplar(), accepted.caller
        service.versions.check_room()  # before the question is parsed
        with service.versions.lease() as lease:
            prepared = partial(self._prepared, unread, accepted, lease, received=received)
            try:
                read, question = await service.workers.read(prepared, size=accepted.size, caller=accepted.share)
            except FormattedError as refused:
                if caller is not None and isinstance(refused.error, ServiceError):
                    caller.charge_refused(refused.error)
                raise
            with errors_in(read.dialect), charge_tokens(caller, question.prepared.tokens) as charge:
                before = question.prepared.tokens
                question, ranked = await service.ranking.rank(question, size=accepted.size)
                charge.add(question.prepared.tokens - before)  # the pairs of a first stage's survivors
                rendered = await service.workers.run(partial(self._rendered, read, question, ranked, request_id))
            rendered = rendered.sent(time.monotonic() - received)
            service.metrics.answered(
                rendered.answer,
                trace,
                duplicates=len(question.prepared.pair_of) - len(question.prepared.unique),
                vectors={} if question.texts is None else question.texts.sources,
            )
            service.versions.answered()
            service.shadow.offer(question.call, question.live, rendered.ranked)
            return rendered

    def _prepared(
        self, unread: Unread, accepted: AcceptedRequest, lease: Lease, *, received: float
    ) -> tuple[Read, Question]:
        """Read a question and prepare it for the engine. Runs in a worker. Raises FormattedError."""
        read = unread.read()
        with errors_in(read.dialect):
            self.ignored.log(read.dialect.tag, read.ignored)
            call, deadline = read.call, accepted.latest
            if accepted.caller is not None:
                # The key's hash rather than its name, which could be given to another key later.
                call = replace(call, tenant=accepted.caller.key.sha256)
            if call.deadline_ms is not None:
                own_deadline = received + call.deadline_ms / 1000.0
                deadline = own_deadline if deadline is None else min(own_deadline, deadline)
            return read, self.service.ranking.prepare(call, lease, received=received, deadline=deadline)

    def _rendered(self, read: Read, question: Question, ranked: Ranked, request_id: str) -> Rendered:
        whole = question.whole(ranked)
        answer = self.service.ranking.answer(question, whole, request_id)
        return Rendered(to_json(read.dialect.render(answer, read.options)), answer, question.call.question, whole)
