"""From a prepared call to an answer: the way through workers and engine, with its times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from cerberank_models.checkpoint.store.contract import Reference
from cerberank_models.drop import UNSCORED, DropPolicy
from cerberank_service.call import RankAnswer, RankCall, Timing
from cerberank_service.engine.job import Job, Outcome, Ranked, stage_tokens
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.http.deadlines import due
from cerberank_service.http.large_bodies import LargeBodies
from cerberank_service.http.large_body import LargeBody
from cerberank_service.ranking.prepare import Prepared, prepare
from cerberank_service.ranking.reading import Read, Reading
from cerberank_service.ranking.score_cache import ScoreCache
from cerberank_service.ranking.slo import choose
from cerberank_service.ranking.workers import Workers
from cerberank_service.rollout.shadow import Shadow
from cerberank_service.settings import Settings
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.telemetry.tracing import exemplar
from cerberank_service.versions.loading import LiveVersion
from cerberank_service.versions.registry import Lease, ServedModels

OptionsT = TypeVar("OptionsT")
Take = Callable[[Read], tuple[RankCall, OptionsT]]
Render = Callable[[RankAnswer, OptionsT], Any]
Charge = Callable[[int], None]


def free(tokens: int) -> None:
    """What charges nobody."""


class Ranking:
    """Ranks the body of a request in any dialect."""

    def __init__(
        self, settings: Settings, served: ServedModels, shadow: Shadow, workers: Workers, metrics: Metrics
    ) -> None:
        """Everything is owned by the app."""
        self._settings, self._served, self._shadow = settings, served, shadow
        self._workers, self._metrics = workers, metrics
        self._cache = ScoreCache(settings.score_cache_entries)
        self._large = LargeBodies(together=settings.max_bodies_bytes)

    async def rank(
        self,
        body: bytes | LargeBody,
        reading: Reading,
        take: Take[OptionsT],
        render: Render[OptionsT],
        request_id: str,
        *,
        timeout_ms: float | None = None,
        charge: Charge = free,
    ) -> Any:
        """The rendered answer. Raises ServiceError; cancelled, it frees what the engine holds.

        `take` gets what was read: the call and what it is rendered by, or it raises ServiceError. `charge` is told the
        question's tokens as soon as they are known.
        """
        started = time.monotonic()
        self._served.check_room()  # before it costs anything
        with self._served.lease() as lease:
            read = await self._read(reading, body)
            call, options, prepared, live = await self._workers.run(lambda: self._prepare(take(read()), lease))
            charge(prepared.pairs.tokens)
            encoded = time.monotonic()
            prepared = self._in_time(call, prepared, live, spent=encoded - started)
            deadline = due(started, call.deadline_ms, timeout_ms)
            ranked = await _submit(live, prepared, deadline, call.priority, received=started)
            answer = _answer(
                call, prepared, ranked, live.reference, request_id, encode=encoded - started, started=started
            )
            self._count(answer, prepared)

            def finish() -> Any:
                self._cache.keep(live.reference, call.question, prepared.unique, ranked.trace, ranked.heads)
                return render(answer, options)

            content = await self._workers.run(finish)
            self._shadow.offer(call, live, ranked)
            return content

    def start(self) -> None:
        """Start the process that reads large bodies before the first of them does."""
        self._large.start()

    def close(self) -> None:
        """End that process."""
        self._large.close()

    async def _read(self, reading: Reading, body: bytes | LargeBody) -> Callable[[], Read]:
        """What a worker reads the body by, or has it by that another process has read."""
        if isinstance(body, bytes):
            return partial(reading, body)
        read = await self._large.read(reading, body)
        return lambda: read

    def _count(self, answer: RankAnswer, prepared: Prepared) -> None:
        duplicates = len(prepared.pair_of) - len(prepared.pairs)
        self._metrics.duplicates.labels(answer.model, answer.version).inc(duplicates)
        known = 0 if prepared.known is None else len(prepared.known.rows)
        self._metrics.cached.labels(answer.model, answer.version).inc(known)
        self._metrics.answered(answer, exemplar())

    def _in_time(self, call: RankCall, prepared: Prepared, live: LiveVersion, *, spent: float) -> Prepared:
        """With the schedule that meets the latency target, if there is one and the caller did not choose."""
        target = call.latency_target_ms or self._settings.latency_target_ms
        config = live.checkpoint.config
        if call.drop_ratio is not None or not target or not config.tuned_schedules:
            return prepared

        def seconds(policy: DropPolicy) -> float:
            return live.engine.predict(stage_tokens(prepared.pairs, policy), call.priority)

        choice = choose(config, call.top_k or 1, seconds, target / 1000.0 - spent)
        return replace(prepared, policy=choice.policy, loss=choice.loss)

    def _prepare(
        self, taken: tuple[RankCall, OptionsT], lease: Lease
    ) -> tuple[RankCall, OptionsT, Prepared, LiveVersion]:
        call, options = taken
        live = lease.take(call.model, call.version, call.question)
        with live.encoder() as encoder:
            prepared = prepare(call, live.checkpoint, encoder, default=live.schedule)
        known = self._cache.find(live.reference, call.question, prepared.unique)
        return call, options, replace(prepared, known=known), live


async def _submit(
    live: LiveVersion, prepared: Prepared, deadline: float | None, priority: int, *, received: float
) -> Ranked:
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
        policy=prepared.policy,
        received=received,
        submitted=time.monotonic(),
        deadline=deadline,
        known=prepared.known,
        resolve=resolve,
        priority=priority,
    )
    live.engine.submit(job)
    try:
        outcome = await future
    except asyncio.CancelledError:
        job.cancelled = True
        raise
    if isinstance(outcome, ServiceError):
        live.failed += outcome.kind is Kind.INTERNAL
        raise outcome
    live.answered += 1
    return outcome


def _answer(
    call: RankCall,
    prepared: Prepared,
    ranked: Ranked,
    reference: Reference,
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
        model=reference.model,
        version=reference.version,
        drop_schedule=prepared.policy.ratios,
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
