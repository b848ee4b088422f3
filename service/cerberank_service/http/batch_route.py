"""The route for several questions in one call.

Each question is handled like a request of its own, with its own quota, trace span, errors and log line. The call has
one body, one client that may disconnect, and counts once among the requests in progress.

Questions of few characters together are in progress at the same time, so that one is tokenised while others are
computed, and their pairs share steps; a long one, or one with a deadline of its own, runs alone. Admission control does
not count the questions of a call as work before each other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from fastapi import Request, Response

from cerberank_service.dialects.dialect import FormattedError
from cerberank_service.dialects.native import NATIVE
from cerberank_service.dialects.native_batch import (
    TOGETHER,
    QuestionOfBatch,
    read_batch,
    render_answer,
    render_batch,
    render_error,
)
from cerberank_service.engine.work import too_late
from cerberank_service.http.accept import AcceptedRequest, accept, unless_disconnected
from cerberank_service.http.error_responses import request_id_of
from cerberank_service.http.rank_route import CLIENT_GONE, RankRoute
from cerberank_service.http.response_headers import LOAD_FORMAT, load_report
from cerberank_service.ranking.read import ParsedCall, Reader

PATH = "/v1/rank/batch"


@dataclass(frozen=True, slots=True)
class BatchRoute:
    """Answers the questions of a request, each by the route for single questions."""

    rank: RankRoute

    async def __call__(self, request: Request) -> Response:
        """200 with an entry for each question; an error response if the call as a whole is refused."""
        request_id, service = request_id_of(request), self.rank.service
        try:
            async with accept(service, self.rank.bodies, request) as accepted:
                read = partial(read_batch, accepted.body.content, service.settings.max_candidates)
                questions = await service.workers.read(read, size=accepted.size, caller=accepted.share)
                entries = await unless_disconnected(request, self._entries(request, accepted, questions))
        except Exception as error:  # `respond` logs the reason
            return self.rank.errors.respond(error, request)
        if entries is None:
            return Response(status_code=CLIENT_GONE)
        headers = {"X-Request-Id": request_id, **load_report(request.headers.get(LOAD_FORMAT), service.load)}
        return Response(render_batch(request_id, entries), media_type="application/json", headers=headers)

    async def _entries(
        self, request: Request, accepted: AcceptedRequest, questions: Sequence[QuestionOfBatch]
    ) -> list[bytes]:
        """The entries of all questions, which begin in their order."""
        tasks: list[asyncio.Task[bytes]] = []
        running: dict[asyncio.Task[bytes], int] = {}
        async with asyncio.TaskGroup() as group:
            for place, question in enumerate(questions):
                while running and sum(running.values()) + question.characters > TOGETHER:
                    done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for each in done:
                        del running[each]
                tasks.append(group.create_task(self._entry(request, accepted, question, place)))
                running[tasks[-1]] = question.characters
        return [task.result() for task in tasks]

    async def _entry(self, request: Request, accepted: AcceptedRequest, question: QuestionOfBatch, place: int) -> bytes:
        """The entry of one question; its errors are logged, counted and rendered.

        After the request's deadline all questions but the first are refused here, because an idle engine would still
        run one step for each of them.
        """
        rank, trace_id, request_id = self.rank, None, f"{request_id_of(request)}-{place}"
        read = partial(_read_part, Reader((NATIVE,), rank.service.settings.max_candidates), question)
        try:
            with rank.service.tracing.request(PATH, request.headers, request_id) as span:
                trace_id = span.trace_id
                if place > 0:
                    if accepted.latest is not None and time.monotonic() >= accepted.latest:
                        raise too_late(wait=1)
                    if accepted.caller is not None:
                        accepted.caller.enter()  # it has entered for the first question
                began, among = time.monotonic(), id(accepted)
                rendered = await rank.ranked(read, accepted, request_id, received=began, among=among)
                rank.log(rendered, request, span)
                return render_answer(rendered.content)
        except Exception as error:  # `note` logs the reason
            return render_error(rank.errors.note(_cause(error), request, request_id, trace_id), request_id)


def _read_part(reader: Reader, question: QuestionOfBatch) -> ParsedCall:
    """Read one question of a request, with its share of the request's limit of windows. Raises FormattedError."""
    parsed = reader.read(question.document)
    if (windowing := parsed.call.windowing) is None:
        return parsed
    share = replace(windowing, most_rows=question.most_rows)
    return replace(parsed, call=replace(parsed.call, windowing=share))


def _cause(error: Exception) -> Exception:
    """The error without its format.

    This is a function because a local variable of the handler would form a cycle with the error's traceback.
    """
    return error.error if isinstance(error, FormattedError) else error
