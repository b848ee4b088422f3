"""From a prepared call to an answer: the way through workers and engine, with its times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from cerberank_models.checkpoint import Checkpoint
from cerberank_service.call import RankAnswer, RankCall, Timing
from cerberank_service.deadlines import due
from cerberank_service.engine import Engine, dead, stopped
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.job import UNSCORED, Job, Outcome, Ranked, stage_tokens
from cerberank_service.live import LiveModel, State
from cerberank_service.metrics import Metrics
from cerberank_service.prepare import Prepared, prepare
from cerberank_service.score_cache import ScoreCache
from cerberank_service.settings import Settings
from cerberank_service.slo import Schedule, choose
from cerberank_service.tracing import exemplar
from cerberank_service.workers import Workers

OptionsT = TypeVar("OptionsT")
Parse = Callable[[bytes], tuple[RankCall, OptionsT]]
Render = Callable[[RankAnswer, OptionsT], Any]


class Ranking:
    """Ranks the body of a request in any dialect."""

    def __init__(self, settings: Settings, live: LiveModel, workers: Workers, metrics: Metrics) -> None:
        """Everything is owned by the app."""
        self._settings, self._live, self._workers, self._metrics = settings, live, workers, metrics
        self._cache = ScoreCache(settings.score_cache_entries)

    async def rank(
        self,
        body: bytes,
        parse: Parse[OptionsT],
        render: Render[OptionsT],
        request_id: str,
        *,
        timeout_ms: float | None = None,
    ) -> Any:
        """The rendered answer. Raises ServiceError; cancelled, it frees what the engine holds."""
        started = time.monotonic()
        checkpoint, engine = self._model()
        engine.check_room()  # before it costs anything
        call, options, prepared = await self._workers.run(partial(self._read, body, parse, checkpoint))
        encoded = time.monotonic()
        prepared = self._in_time(call, prepared, checkpoint, engine, spent=encoded - started)
        ranked = await _submit(engine, prepared, due(started, call.deadline_ms, timeout_ms), call.priority)
        answer = _answer(call, prepared, ranked, checkpoint, request_id, encode=encoded - started, started=started)
        duplicates = len(prepared.pair_of) - len(prepared.pairs)
        self._metrics.duplicates.labels(answer.model, answer.version).inc(duplicates)
        known = 0 if prepared.known is None else len(prepared.known.rows)
        self._metrics.cached.labels(answer.model, answer.version).inc(known)
        self._metrics.answered(answer, exemplar())

        def finish() -> Any:
            self._cache.keep(answer.version, call.question, prepared.unique, ranked.trace, ranked.heads)
            return render(answer, options)

        return await self._workers.run(finish)

    def _in_time(
        self, call: RankCall, prepared: Prepared, checkpoint: Checkpoint, engine: Engine, *, spent: float
    ) -> Prepared:
        """With the schedule that meets the latency target, if there is one and the caller did not choose."""
        target = call.latency_target_ms or self._settings.latency_target_ms
        tuned = checkpoint.config.tuned_schedules
        if call.drop_ratio is not None or not target or not tuned:
            return prepared

        def seconds(schedule: Schedule) -> float:
            return engine.predict(stage_tokens(prepared.pairs, schedule, prepared.minimum), call.priority)

        choice = choose(tuned, seconds, target / 1000.0 - spent)
        return replace(prepared, schedule=choice.schedule, loss=choice.loss)

    def _model(self) -> tuple[Checkpoint, Engine]:
        if self._live.state is State.LOADING:
            raise ServiceError(Kind.UNAVAILABLE, "the model is still loading; see /health/ready", retry_after=2)
        if self._live.state is State.STOPPED:
            raise stopped()
        if self._live.state is State.FAILED or self._live.checkpoint is None or self._live.engine is None:
            if self._live.engine is not None:
                raise dead()
            raise ServiceError(Kind.UNAVAILABLE, "no model could be loaded; see /v1/models", retry_after=10)
        return self._live.checkpoint, self._live.engine

    def _read(self, body: bytes, parse: Parse[OptionsT], checkpoint: Checkpoint) -> tuple[RankCall, OptionsT, Prepared]:
        call, options = parse(body)
        prepared = prepare(call, checkpoint, self._workers.encoder(checkpoint), self._settings)
        known = self._cache.find(checkpoint.manifest.version, call.question, prepared.unique)
        return call, options, replace(prepared, known=known)


async def _submit(engine: Engine, prepared: Prepared, deadline: float | None, priority: int) -> Ranked:
    """Hand the question to the engine and wait; raises the ServiceError that it is answered with."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Outcome] = loop.create_future()

    def set_result(outcome: Outcome) -> None:
        if not future.done():  # the client may have gone
            future.set_result(outcome)

    def resolve(outcome: Outcome) -> None:
        try:
            loop.call_soon_threadsafe(set_result, outcome)
        except RuntimeError:  # the loop has ended, and with it everybody who waits
            return

    job = Job(
        pairs=prepared.pairs,
        schedule=prepared.schedule,
        minimum=prepared.minimum,
        submitted=time.monotonic(),
        deadline=deadline,
        known=prepared.known,
        resolve=resolve,
        priority=priority,
    )
    engine.submit(job)
    try:
        outcome = await future
    except asyncio.CancelledError:
        job.cancelled = True
        raise
    if isinstance(outcome, ServiceError):
        raise outcome
    return outcome


def _answer(
    call: RankCall,
    prepared: Prepared,
    ranked: Ranked,
    checkpoint: Checkpoint,
    request_id: str,
    *,
    encode: float,
    started: float,
) -> RankAnswer:
    """Unfold duplicates: each takes the place of its pair, in the order of the request."""
    pair_of = prepared.pair_of
    place = np.empty(len(prepared.pairs), dtype=np.int64)
    place[ranked.order] = np.arange(len(ranked.order))
    by_place = np.argsort(place[pair_of], kind="stable")
    warnings = prepared.warnings
    if not ranked.complete:
        warnings = (*warnings, "the deadline passed: the order is what was known then")
    if unscored := int((ranked.stages[pair_of] == UNSCORED).sum()):
        warnings = (*warnings, f"{unscored} candidates were not scored in time; they stand last, in the order given")
    return RankAnswer(
        request_id=request_id,
        model=checkpoint.config.name,
        version=checkpoint.manifest.version,
        drop_schedule=prepared.schedule,
        expected_loss=prepared.loss,
        complete=ranked.complete,
        order=by_place[: call.top_k],
        scores=ranked.scores[pair_of],
        stages=ranked.stages[pair_of],
        heads=None if ranked.heads is None else ranked.heads[pair_of],
        truncated=prepared.pairs.truncated[pair_of],
        tokens=prepared.pairs.tokens,
        timing=Timing(
            encode=1000.0 * encode,
            queue=1000.0 * ranked.queue_seconds,
            compute=1000.0 * ranked.compute_seconds,
            total=1000.0 * (time.monotonic() - started),
        ),
        warnings=warnings,
    )
