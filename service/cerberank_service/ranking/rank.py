"""The three steps of a question: prepare in a worker, rank in the engine, render in a worker."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import to_json

from cerberank_models.drop import DropPolicy
from cerberank_models.token_cache import TokenCache
from cerberank_service.call import RankAnswer, RankCall
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.engine.job import Job, Outcome, Ranked, stage_tokens
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.ranking.answer import answer_of
from cerberank_service.ranking.prepare import Prepared, prepare
from cerberank_service.ranking.score_cache import ScoreCache
from cerberank_service.ranking.slo import choose
from cerberank_service.settings import Settings
from cerberank_service.versions.loading import LiveVersion
from cerberank_service.versions.registry import Lease


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A call that is ready for the engine of the version that will answer it."""

    call: RankCall
    dialect: Dialect
    options: Any
    """The dialect's options for rendering the answer."""
    live: LiveVersion
    prepared: Prepared
    job: Job
    outcome: Future[Outcome]
    """Set by the engine."""
    received: float
    """Seconds on the monotonic clock."""
    encode_seconds: float


@dataclass(frozen=True, slots=True)
class Rendered:
    """An answer and its bytes in the dialect of the question."""

    content: bytes
    answer: RankAnswer
    question: str


class Ranking:
    """Implements the three steps; the caller calls them one after the other."""

    def __init__(self, settings: Settings) -> None:
        """The settings contain the sizes of both caches and the default latency target."""
        self._latency_target_ms = settings.latency_target_ms
        self._scores = ScoreCache(settings.score_cache_entries)
        self.tokens = TokenCache(settings.token_cache_bytes)
        """Tokens of questions, candidates and contexts; versions with the same tokenizer and encoding share them."""

    def prepare(
        self, call: RankCall, lease: Lease, dialect: Dialect, options: Any, *, received: float, deadline: float | None
    ) -> Question:
        """Choose the version, tokenise, choose the drop schedule. For a worker. Raises ServiceError."""
        live = lease.take(call.model, call.version, call.question)
        prepared = prepare(call, live.checkpoint, live.encoder, default=live.schedule, cache=self.tokens)
        prepared = replace(prepared, known=self._scores.find(live.reference, call, prepared.unique))
        encoded = time.monotonic() - received
        prepared = self._with_target_schedule(call, prepared, live, spent=encoded)
        outcome: Future[Outcome] = Future()
        outcome.set_running_or_notify_cancel()  # a caller that stops waiting cannot cancel the engine's future
        job = Job(
            pairs=prepared.pairs,
            policy=prepared.policy,
            received=received,
            submitted=time.monotonic(),
            deadline=deadline,
            known=prepared.known,
            resolve=outcome.set_result,
            priority=call.priority,
        )
        return Question(
            call=call,
            dialect=dialect,
            options=options,
            live=live,
            prepared=prepared,
            job=job,
            outcome=outcome,
            received=received,
            encode_seconds=encoded,
        )

    @staticmethod
    async def rank(question: Question) -> Ranked:
        """Submit the question to the engine and wait. Raises ServiceError. A cancellation frees the engine's state."""
        job, live = question.job, question.live
        job.submitted = time.monotonic()
        live.engine.submit(job)
        try:
            outcome = await asyncio.wrap_future(question.outcome)
        except asyncio.CancelledError:
            job.cancelled = True
            raise
        if isinstance(outcome, ServiceError):
            live.failed += outcome.kind is Kind.INTERNAL
            raise replace(outcome)
        live.answered += 1
        return outcome

    def render(self, question: Question, ranked: Ranked, request_id: str) -> Rendered:
        """The answer, as values and as bytes. For a worker, because an answer may have 10,000 results."""
        answer = answer_of(
            question.call,
            question.prepared,
            ranked,
            question.live.reference,
            request_id,
            encode_seconds=question.encode_seconds,
            total_seconds=time.monotonic() - question.received,
        )
        self._scores.keep(question.live.reference, question.call, question.prepared.unique, ranked.trace, ranked.heads)
        return Rendered(to_json(question.dialect.render(answer, question.options)), answer, question.call.question)

    def _with_target_schedule(self, call: RankCall, prepared: Prepared, live: LiveVersion, *, spent: float) -> Prepared:
        """Use the tuned schedule that meets the latency target, if there is a target and the call has no drop ratio."""
        target = call.latency_target_ms or self._latency_target_ms
        config = live.checkpoint.config
        if call.drop_ratio is not None or not target or not config.tuned_schedules:
            return prepared

        def seconds(policy: DropPolicy) -> float:
            return live.engine.predict(stage_tokens(prepared.pairs, policy), call.priority)

        choice = choose(config, call.top_k or 1, seconds, target / 1000.0 - spent)
        return replace(prepared, policy=choice.policy, loss=choice.loss)
