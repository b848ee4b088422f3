"""The ranking route: the steps of a request from its body to its response.

body -> read and prepare (worker) -> engine -> render (worker) -> count and send

If a first stage must compute vectors, the engine runs twice, with a worker in between:

body -> read (worker) -> engine: vectors -> score and encode pairs (worker) -> engine: pairs -> render (worker)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from fastapi import Request, Response
from pydantic_core import to_json

from cerberank_models.ranking.call import RankAnswer
from cerberank_service.access.access import charge_tokens
from cerberank_service.dialects.dialect import Dialect, FormattedError, errors_in
from cerberank_service.errors import ServiceError
from cerberank_service.http.accept import AcceptedRequest, accept, unless_disconnected
from cerberank_service.http.body import Bodies
from cerberank_service.http.error_responses import ErrorResponses, request_id_of
from cerberank_service.http.response_headers import (
    LOAD_FORMAT,
    answerable,
    load_report,
    server_timing,
    unread_texts,
)
from cerberank_service.ranking.pipeline import Question
from cerberank_service.ranking.read import ParsedCall, Reader
from cerberank_service.service import Service
from cerberank_service.telemetry.logs import IgnoredFields, log_answer, request_fields
from cerberank_service.telemetry.tracing import RequestSpan, exemplar
from cerberank_service.versions.registry import Lease

CLIENT_GONE = 499
"""Status of a request whose client has disconnected, as in nginx's logs."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """An answer, with its bytes in the dialect of the request."""

    content: bytes
    answer: RankAnswer
    question: str

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
            # The content is looked up in the worker, because it is emptied when the request ends.
            ranked = self.ranked(
                lambda: reader(accepted.body.content), accepted, request_id, received=accepted.received
            )
            rendered = await unless_disconnected(request, ranked)
        if rendered is None:
            return Response(status_code=CLIENT_GONE)
        self.log(rendered, request, span)
        headers = {
            "X-Request-Id": request_id,
            "X-Model-Version": f"{rendered.answer.model}@{rendered.answer.version}",
            **answerable(rendered.answer),
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

    async def ranked(
        self,
        read: Callable[[], ParsedCall],
        accepted: AcceptedRequest,
        request_id: str,
        *,
        received: float,
        among: int | None = None,
    ) -> Rendered:
        """Rank and render one question of a request, and count its answer. Raises the error if it is refused.

        `read` reads the question in a worker. `received` is the time from which its own deadline runs. `among` is the
        number of a request of several questions (`Work.request`).
        """
        service, trace, caller = self.service, exemplar(), accepted.caller
        service.versions.check_room()  # before the question is parsed
        with service.versions.lease() as lease:
            prepared = partial(self._prepared, read, accepted, lease, received=received, among=among)
            try:
                parsed, question = await service.workers.read(prepared, size=accepted.size, caller=accepted.share)
            except FormattedError as refused:
                if caller is not None and isinstance(refused.error, ServiceError):
                    caller.charge_refused(refused.error)
                raise
            with errors_in(parsed.dialect), charge_tokens(caller, question.prepared.tokens) as charge:
                before = question.prepared.tokens
                question = await service.pipeline.rank(question, size=accepted.size)
                charge.add(question.prepared.tokens - before)  # the pairs of a first stage's survivors
                rendered = await service.workers.run(
                    partial(self._rendered, parsed, question, request_id, calibrated=accepted.calibrated)
                )
            rendered = rendered.sent(time.monotonic() - received)
            service.metrics.answered(
                rendered.answer,
                trace,
                duplicates=len(question.prepared.places) - len(question.prepared.candidates),
                vectors={} if question.prepared.texts is None else question.prepared.texts.sources,
            )
            service.versions.answered()
            service.shadow.offer(question, complete=rendered.answer.complete)
            return rendered

    def _prepared(
        self,
        read: Callable[[], ParsedCall],
        accepted: AcceptedRequest,
        lease: Lease,
        *,
        received: float,
        among: int | None,
    ) -> tuple[ParsedCall, Question]:
        """Read a question and prepare it for the engine. Runs in a worker. Raises FormattedError."""
        parsed = read()
        with errors_in(parsed.dialect):
            self.ignored.log(parsed.dialect.tag, parsed.ignored)
            call, deadline = parsed.call, accepted.latest
            # The key's hash rather than its name, which could be given to another key later.
            tenant = "" if accepted.caller is None else accepted.caller.key.sha256
            if call.deadline_ms is not None:
                own_deadline = received + call.deadline_ms / 1000.0
                deadline = own_deadline if deadline is None else min(own_deadline, deadline)
            return parsed, self.service.pipeline.prepare(
                call, lease, tenant=tenant, received=received, deadline=deadline, request=among
            )

    def _rendered(self, parsed: ParsedCall, question: Question, request_id: str, *, calibrated: bool) -> Rendered:
        answer = self.service.pipeline.answer(question, request_id, calibrated_everywhere=calibrated)
        content = to_json(parsed.dialect.render(answer, parsed.options))
        return Rendered(content, answer, question.prepared.call.question)
