"""The route for several questions in one call.

Each question is handled like a request of its own, with its own quota, trace span, errors and log line. The call has
one body, one client that may disconnect, and counts once among the requests in progress.

The questions are ranked one after the other. If they were queued together, admission control might refuse some of them
because they would have to wait for the other questions of their own call.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from fastapi import Request, Response

from cerberank_service.dialects.dialect import FormattedError
from cerberank_service.dialects.native import NATIVE
from cerberank_service.dialects.native_batch import Asked, read_batch, render_answer, render_batch, render_error
from cerberank_service.engine.work import too_late
from cerberank_service.http.deadlines import HEADER, due, read_header
from cerberank_service.http.disconnect import unless_disconnected
from cerberank_service.http.error_responses import request_id_of
from cerberank_service.http.rank_route import CLIENT_GONE, Origin, RankRoute, share_of
from cerberank_service.http.response_headers import LOAD_FORMAT, load_report
from cerberank_service.ranking.read import Read, Reader
from cerberank_service.telemetry.series import REQUESTS_IN_FLIGHT

PATH = "/v1/rank/batch"


@dataclass(frozen=True, slots=True)
class _Call:
    """The values that all questions of a call share."""

    request: Request
    origin: Origin
    latest: float | None
    """The call's deadline, in seconds on the monotonic clock; None without one."""


@dataclass(frozen=True, slots=True)
class BatchRoute:
    """Answers the questions of a call, each by the route for single questions."""

    rank: RankRoute

    async def __call__(self, request: Request) -> Response:
        """200 with an entry for each question; an error response if the call as a whole is refused."""
        request_id, rank = request_id_of(request), self.rank
        try:
            rank.check_room()
            caller = rank.identify(request)
            if caller is not None:
                caller.enter()  # for the first question, before the body is received
            timeout_ms = read_header(request.headers.get(HEADER))
            with rank.metrics[REQUESTS_IN_FLIGHT].track_inprogress():
                async with rank.bodies.received(request) as body:
                    rank.versions.check_serving()  # once, so that a shutdown does not refuse the rest of a call
                    latest = due(time.monotonic(), timeout_ms)
                    origin = Origin(caller, share_of(request, caller), len(body.content))
                    read = partial(read_batch, body.content, rank.settings.max_candidates)
                    questions = await rank.workers.read(read, size=origin.size, caller=origin.share)
                    call = _Call(request, origin, latest)
                    entries = await unless_disconnected(request, self._entries(call, questions))
        except Exception as error:  # `respond` logs the reason
            return rank.errors.respond(error, request)
        if entries is None:
            return Response(status_code=CLIENT_GONE)
        headers = {"X-Request-Id": request_id, **load_report(request.headers.get(LOAD_FORMAT), rank.load)}
        return Response(render_batch(request_id, entries), media_type="application/json", headers=headers)

    async def _entries(self, call: _Call, questions: Sequence[Asked]) -> list[bytes]:
        """The entries of all questions."""
        return [await self._entry(call, question, place) for place, question in enumerate(questions)]

    async def _entry(self, call: _Call, question: Asked, place: int) -> bytes:
        """The entry of one question; its errors are logged, counted and rendered.

        After the call's deadline all questions but the first are refused here, because an idle engine would still run
        one step for each of them.
        """
        rank, request, origin, latest = self.rank, call.request, call.origin, call.latest
        trace_id, request_id = None, f"{request_id_of(request)}-{place}"
        unread = _UnreadPart(Reader((NATIVE,), rank.settings.max_candidates), question)
        try:
            with rank.tracing.request(PATH, request.headers, request_id) as span:
                trace_id = span.trace_id
                if place > 0 and latest is not None and time.monotonic() >= latest:
                    raise too_late(wait=1)
                if origin.caller is not None and place > 0:
                    origin.caller.enter()
                rendered = await rank.ranked(unread, origin, request_id, received=time.monotonic(), latest=latest)
                rank.tell(rendered, request, span)
                return render_answer(rendered.content)
        except Exception as error:  # `note` logs the reason
            return render_error(rank.errors.note(_cause(error), request, request_id, trace_id), request_id)


@dataclass(frozen=True, slots=True)
class _UnreadPart:
    """One question of a body with several questions."""

    reader: Reader
    question: Asked

    def read(self) -> Read:
        """Read the question, with its share of the call's limit of windows. Raises FormattedError."""
        read = self.reader.read(self.question.document)
        if (windowing := read.call.windowing) is None:
            return read
        share = replace(windowing, most_rows=self.question.most_rows)
        return replace(read, call=replace(read.call, windowing=share))


def _cause(error: Exception) -> Exception:
    """The error without its format.

    This is a function because a local variable of the handler would form a cycle with the error's traceback.
    """
    return error.error if isinstance(error, FormattedError) else error
