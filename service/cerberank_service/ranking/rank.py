"""The three steps of a question: a worker prepares it, the engine ranks it, a worker makes the answer.

If a first stage (`first_stage`) must compute vectors, the engine runs twice: first for the texts without a vector, then
for the pairs of the survivors. In between, a worker scores all candidates and encodes the survivors.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from cerberank_models.drop import DropPolicy
from cerberank_models.first_stage.cache import VectorCache
from cerberank_models.token_cache import TokenCache
from cerberank_models.windows import MOST_WINDOWS
from cerberank_service.call import RankAnswer, RankCall
from cerberank_service.engine.work import Ranked, Work, stage_tokens, too_late
from cerberank_service.errors import Kind, ServiceError, panics_as_errors
from cerberank_service.ranking.answer import answer_of
from cerberank_service.ranking.first_stage import (
    NO_WORK,
    VECTORS_ALONE,
    Caches,
    Scored,
    Texts,
    read_texts,
    score_texts,
    whole_ranking,
)
from cerberank_service.ranking.prepare import Prepared, fold, prepare
from cerberank_service.ranking.slo import choose, loss_of
from cerberank_service.ranking.workers import Workers
from cerberank_service.settings import Settings
from cerberank_service.versions.loading import LiveVersion
from cerberank_service.versions.registry import Lease

LATE_SECONDS, LATE_STEPS = 1.0, 10.0
"""The time after a deadline, in seconds and in predicted times of a full step, at which the engine is not waited for
any longer; the larger one applies."""


@dataclass(frozen=True, slots=True)
class Question:
    """A call, read for the version that will answer it."""

    call: RankCall
    live: LiveVersion
    prepared: Prepared
    received: float
    """Time of the request's arrival, in seconds on the monotonic clock."""
    deadline: float | None
    """The latest time of the answer on the same clock; None for no deadline."""
    encode_seconds: float
    texts: Texts | None = None
    """The texts that a first stage reads; None for a version without a first stage."""
    scored: Scored | None = None
    """The first stage's result; None before it has run. Once it is set, `texts` holds no vectors any more."""
    work: Work | None = None
    """The next work for the engine; None if nothing is left to run: all vectors are known and no pairs are read."""

    @classmethod
    def read(
        cls, call: RankCall, live: LiveVersion, caches: Caches, *, received: float, deadline: float | None
    ) -> Question:
        """Encode the pairs of a call, or the texts if the version has a first stage. Raises ServiceError."""
        texts = None
        if live.first is None:
            prepared = prepare(call, live.checkpoint, live.encoder, default=live.schedule, cache=caches.tokens)
        else:
            prepared = fold(call, live.checkpoint, live.schedule)
            texts = read_texts(call, prepared, live, live.first, caches)
            prepared = replace(prepared, text_tokens=texts.encoded.tokens)
        encoded = time.monotonic() - received
        return cls(call, live, prepared, received, deadline, encoded, texts)

    def after_texts(self, ranked: Ranked, caches: Caches) -> Question:
        """The question with the result of its first stage and the pairs of the survivors. Raises ServiceError.

        `ranked` has the computed vectors; it is `NO_WORK` if all were known.
        """
        began, texts = time.monotonic(), self.texts
        assert texts is not None, "the version has no first stage"
        prepared, scored = score_texts(self.call, self.prepared, texts, self.live, caches, ranked=ranked)
        encoded = self.encode_seconds + time.monotonic() - began
        return replace(self, prepared=prepared, texts=texts.released(), scored=scored, encode_seconds=encoded)

    def with_work(self, *, follows: int | None = None) -> Question:
        """The question with its next work: its pairs, or its cold texts if a first stage has not scored it yet.

        The work follows the engine's work of the key `follows`.
        """
        prepared, texts, scored = self.prepared, self.texts, self.scored
        if scored is not None and not self.live.checkpoint.config.reads_pairs:
            return replace(self, work=None)
        work = Work(
            pairs=prepared.pairs,
            policy=prepared.policy,
            received=self.received,
            deadline=self.deadline,
            priority=self.call.priority,
            follows=follows,
        )
        if scored is not None:
            policy, dropped = prepared.policy.after_first(), len(scored.scores) - len(scored.alive)
            work = replace(work, policy=policy, first_stage=1, ordered=True, dropped=dropped)
        elif texts is not None:
            work = replace(
                work,
                pairs=texts.encoded,
                policy=VECTORS_ALONE,
                later_tokens=texts.stage_tokens(prepared.policy)[1:],
                leads=texts.leads,
                ordered=any(vector is not None for vector in texts.vectors),
            )
        return replace(self, work=work)

    def whole(self, ranked: Ranked) -> Ranked:
        """The ranking of all distinct candidates, from the engine's last result."""
        return ranked if self.scored is None else whole_ranking(self.scored, ranked)


class Ranking:
    """The steps of a question, to be called in turn: `prepare`, `rank` and `answer`."""

    def __init__(self, settings: Settings, workers: Workers) -> None:
        """Create the caches, with the sizes in `settings`."""
        self._workers = workers
        self._latency_target_ms = settings.latency_target_ms
        self._calibrated_everywhere = settings.calibrated_scores
        self._most_rows = settings.max_candidates
        self.tokens = TokenCache(settings.token_cache_bytes)
        """Tokens of questions, candidates and contexts; versions with the same tokenizer and encoding share them."""
        self.vectors = VectorCache(settings.vector_cache_bytes)
        """Vectors of questions and candidates; versions whose first stages have the same encoder share them."""
        self._caches = Caches(self.tokens, self.vectors)

    def prepare(self, call: RankCall, lease: Lease, *, received: float, deadline: float | None) -> Question:
        """Choose the version, tokenise, and choose the drop schedule. Runs in a worker. Raises ServiceError.

        A question whose deadline has passed is not tokenised if the engine would refuse it: if others are queued there.
        """
        live = lease.take(call.model, call.version, call.question)
        if deadline is not None and time.monotonic() >= deadline and live.engine.queued_tokens:
            raise too_late(wait=1)
        if call.windowing is not None:
            call = replace(call, windowing=call.windowing.within(most=MOST_WINDOWS, most_rows=self._most_rows))
        question = Question.read(call, live, self._caches, received=received, deadline=deadline)
        question = self._with_target_schedule(question)
        if question.texts is not None and not len(question.texts.encoded):
            with _failures_counted(live):
                question = question.after_texts(NO_WORK, self._caches)
        return question.with_work()

    async def rank(self, question: Question, *, size: int = 0) -> tuple[Question, Ranked]:
        """Wait for the engine's ranking; returns it with the question, which has changed if vectors were computed.

        `size` is that of the body in bytes. If the coroutine is cancelled, the question is removed from the engine.
        Raises ServiceError.
        """
        work = question.work
        if work is None:
            return question, NO_WORK
        key, ranked = await self._run(question.live, work)
        if question.texts is None or question.scored is not None:
            return question, ranked
        try:
            question = await self._workers.run(partial(self._read_survivors, question, ranked, key), size=size)
            ranked = replace(ranked, vectors=None)  # frees the vectors while the pairs are ranked
            if ranked.complete and question.work is not None:  # a deadline in the first stage ends the question
                _, ranked = await self._run(question.live, question.work)
        finally:
            question.live.engine.cancel(key)
        return question, ranked

    @staticmethod
    async def _run(live: LiveVersion, work: Work) -> tuple[int, Ranked]:
        """The engine's key for the work, and its ranking. Raises as `rank` does."""
        ticket = live.engine.submit(work)
        try:
            async with asyncio.timeout(_patience(live, work)):
                outcome = await asyncio.wrap_future(ticket.outcome)
        except (asyncio.CancelledError, TimeoutError) as error:
            live.engine.cancel(ticket.key)
            if isinstance(error, TimeoutError):
                raise too_late(wait=1) from error
            raise
        if isinstance(outcome, ServiceError):
            _count_failure(live, outcome)
            raise replace(outcome)
        return ticket.key, outcome  # returning the ticket would keep the vectors in memory

    def _read_survivors(self, question: Question, ranked: Ranked, key: int) -> Question:
        """Score the first stage with the vectors in `ranked`; returns the question with the pairs of the survivors.

        Runs in a worker. Raises ServiceError.
        """
        with _failures_counted(question.live):
            return question.after_texts(ranked, self._caches).with_work(follows=key)

    def answer(self, question: Question, ranked: Ranked, request_id: str) -> RankAnswer:
        """The answer from the ranking of all candidates. Runs in a worker, because it may have 10,000 results."""
        return answer_of(
            question.call,
            question.prepared,
            ranked,
            question.live.reference,
            request_id,
            calibration=question.live.checkpoint.calibration,
            calibrated_everywhere=self._calibrated_everywhere,
            encode_seconds=question.encode_seconds,
            total_seconds=time.monotonic() - question.received,
        )

    def _with_target_schedule(self, question: Question) -> Question:
        """Use the tuned schedule that meets the latency target, if there is one and the call has no drop ratios."""
        call, live, prepared, texts = question.call, question.live, question.prepared, question.texts
        target = call.latency_target_ms or self._latency_target_ms
        config = live.checkpoint.config
        if call.drop_ratio is not None or not target or not config.tuned_schedules:
            return question

        def seconds(policy: DropPolicy) -> float:
            tokens = stage_tokens(prepared.pairs, policy) if texts is None else texts.stage_tokens(policy)
            return live.engine.predict(tokens, call.priority)

        policy = choose(config, call.top_k or 1, seconds, target / 1000.0 - question.encode_seconds)
        loss = loss_of(config.tuned_schedules, policy.ratios)
        return replace(question, prepared=replace(prepared, policy=policy, loss=loss))


def _patience(live: LiveVersion, work: Work) -> float | None:
    """The seconds to wait for the engine's ranking; None without a deadline.

    After a deadline, the engine answers when the running step has ended. A model call that hangs never ends, so the
    wait is limited to a time that is far longer than a step.
    """
    if work.deadline is None:
        return None
    return max(0.0, work.deadline - time.monotonic()) + max(
        LATE_SECONDS, LATE_STEPS * live.engine.speeds.longest_step()
    )


@contextmanager
def _failures_counted(live: LiveVersion) -> Iterator[None]:
    """Count an internal error of the block as a failure of the version, like an error of its engine."""
    try:
        with panics_as_errors():
            yield
    except Exception as error:
        _count_failure(live, error)
        raise


def _count_failure(live: LiveVersion, error: Exception) -> None:
    if not isinstance(error, ServiceError) or error.kind is Kind.INTERNAL:
        live.engine.count_failure()
