"""The three steps of a question: prepare in a worker, rank in the engine, render in a worker.

With a first stage (`first_stage`) whose vectors are not all known, the engine is asked twice: for these, then, after
`read_survivors` in a worker, for the pairs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import to_json

from cerberank_models.drop import DropPolicy
from cerberank_models.first_stage.cache import VectorCache
from cerberank_models.token_cache import TokenCache
from cerberank_service.call import RankAnswer, RankCall
from cerberank_service.dialects.dialect import Dialect
from cerberank_service.engine.job import Job, Outcome, Ranked, stage_tokens
from cerberank_service.errors import Kind, ServiceError, panics_as_errors
from cerberank_service.ranking.answer import answer_of
from cerberank_service.ranking.first_stage import (
    Caches,
    Scored,
    Texts,
    job_options,
    read_texts,
    score_texts,
    whole_ranking,
)
from cerberank_service.ranking.prepare import Prepared, fold, prepare
from cerberank_service.ranking.slo import choose, loss_of
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
    texts: Texts | None = None
    """What a first stage reads; None for a version without one."""
    scored: Scored | None = None
    """The first stage's result; None before it. Nothing refers to vectors from then on."""

    @property
    def awaits_pairs(self) -> bool:
        """Whether its job computes vectors, after which the survivors are read as pairs."""
        return self.texts is not None and self.scored is None


@dataclass(frozen=True, slots=True)
class Rendered:
    """An answer and its bytes in the dialect of the question."""

    content: bytes
    answer: RankAnswer
    question: str
    ranked: Ranked
    """The ranking of the distinct candidates."""


class Ranking:
    """Implements the three steps; the caller calls them one after the other."""

    def __init__(self, settings: Settings) -> None:
        """The settings contain the sizes of all caches and the default latency target."""
        self._latency_target_ms = settings.latency_target_ms
        self._most_windows, self._most_rows = settings.max_windows, settings.max_candidates
        self.tokens = TokenCache(settings.token_cache_bytes)
        """Tokens of questions, candidates and contexts; versions with the same tokenizer and encoding share them."""
        self.vectors = VectorCache(settings.vector_cache_bytes)
        """Vectors of questions and candidates; versions with the same first stage's encoder share them."""
        self._caches = Caches(self.tokens, self.vectors)

    def prepare(
        self, call: RankCall, lease: Lease, dialect: Dialect, options: Any, *, received: float, deadline: float | None
    ) -> Question:
        """Choose the version, tokenise, choose the drop schedule. For a worker. Raises ServiceError."""
        live = lease.take(call.model, call.version, call.question)
        if call.windowing is not None:
            call = replace(call, windowing=call.windowing.within(most=self._most_windows, most_rows=self._most_rows))
        texts = scored = None
        if live.first is None:
            prepared = prepare(call, live.checkpoint, live.encoder, default=live.schedule, cache=self.tokens)
        else:
            prepared = fold(call, live.checkpoint, live.schedule)
            texts = read_texts(call, prepared, live, live.first, self._caches)
            prepared = replace(prepared, text_tokens=texts.encoded.tokens)
        encoded = time.monotonic() - received
        prepared = self._with_target_schedule(call, prepared, texts, live, spent=encoded)
        if texts is not None and not len(texts.encoded):
            with _failures_counted(live):
                prepared, scored = score_texts(call, prepared, texts, live, self._caches)
            encoded = time.monotonic() - received
        outcome = _new_outcome()
        return Question(
            call=call,
            dialect=dialect,
            options=options,
            live=live,
            prepared=prepared,
            job=Job(
                **_what_runs(prepared, texts, scored),
                received=received,
                submitted=time.monotonic(),
                deadline=deadline,
                resolve=outcome.set_result,
                priority=call.priority,
            ),
            outcome=outcome,
            received=received,
            encode_seconds=encoded,
            texts=texts if texts is None or scored is None else texts.released(),
            scored=scored,
        )

    def read_survivors(self, question: Question, ranked: Ranked) -> Question:
        """The question with its first stage's scores, by the vectors in `ranked`, and with a job for the survivors.

        For a worker. After a deadline in the first stage there is no further job. Raises ServiceError.
        """
        assert question.texts is not None, "the version has no first stage"
        began, before, texts = time.monotonic(), question.job, question.texts
        with _failures_counted(question.live):
            prepared, scored = score_texts(
                question.call, question.prepared, texts, question.live, self._caches, ranked=ranked
            )
        encoded = question.encode_seconds + time.monotonic() - began
        question = replace(question, prepared=prepared, texts=texts.released(), scored=scored, encode_seconds=encoded)
        if not ranked.complete:
            return question
        outcome = _new_outcome()
        job = Job(
            **_what_runs(prepared, texts, scored),
            received=before.received,
            submitted=time.monotonic(),
            deadline=before.deadline,
            resolve=outcome.set_result,
            priority=before.priority,
            follows=before.key,
        )
        return replace(question, job=job, outcome=outcome)

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
            live.engine.release(job.key)
            raise
        if isinstance(outcome, ServiceError):
            _count_failure(live, outcome)
            raise replace(outcome)
        return outcome

    def render(self, question: Question, ranked: Ranked, request_id: str) -> Rendered:
        """The answer, as values and as bytes. For a worker, because an answer may have 10,000 results."""
        if question.scored is not None:
            ranked = whole_ranking(question.scored, ranked)
        answer = answer_of(
            question.call,
            question.prepared,
            ranked,
            question.live.reference,
            request_id,
            encode_seconds=question.encode_seconds,
            total_seconds=time.monotonic() - question.received,
        )
        content = to_json(question.dialect.render(answer, question.options))
        return Rendered(content, answer, question.call.question, ranked)

    def _with_target_schedule(
        self, call: RankCall, prepared: Prepared, texts: Texts | None, live: LiveVersion, *, spent: float
    ) -> Prepared:
        """Use the tuned schedule that meets the latency target, if there is a target and the call has no drop ratio."""
        target = call.latency_target_ms or self._latency_target_ms
        config = live.checkpoint.config
        if call.drop_ratio is not None or not target or not config.tuned_schedules:
            return prepared

        def seconds(policy: DropPolicy) -> float:
            tokens = stage_tokens(prepared.pairs, policy) if texts is None else texts.stage_tokens(policy)
            return live.engine.predict(tokens, call.priority)

        policy = choose(config, call.top_k or 1, seconds, target / 1000.0 - spent)
        return replace(prepared, policy=policy, loss=loss_of(config.tuned_schedules, policy.ratios))


@contextmanager
def _failures_counted(live: LiveVersion) -> Iterator[None]:
    """Count an internal error of the block as one of the version, as if it came from its engine."""
    try:
        with panics_as_errors():
            yield
    except Exception as error:
        _count_failure(live, error)
        raise


def _count_failure(live: LiveVersion, error: Exception) -> None:
    if not isinstance(error, ServiceError) or error.kind is Kind.INTERNAL:
        live.engine.count_failure()


def _new_outcome() -> Future[Outcome]:
    outcome: Future[Outcome] = Future()
    outcome.set_running_or_notify_cancel()  # a caller that stops waiting cannot cancel the engine's future
    return outcome


def _what_runs(prepared: Prepared, texts: Texts | None, scored: Scored | None) -> dict[str, Any]:
    """The fields of `Job` that do not depend on who asks."""
    if texts is None:
        return {"pairs": prepared.pairs, "policy": prepared.policy}
    return job_options(prepared, texts, scored)
