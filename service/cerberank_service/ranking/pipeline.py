"""The steps of a question: a worker prepares it, the engine ranks it, a worker makes the answer.

If a first stage must compute vectors, the engine runs twice: first for the texts without a vector, then for the pairs
of the survivors. In between, a worker scores all candidates and encodes the survivors.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from cerberank_models.backends.stage_contract import Vector
from cerberank_models.calibration import CalibrationError
from cerberank_models.config import RankerConfig
from cerberank_models.drop import DropPolicy, RatioSchedule
from cerberank_models.encoding import EncodedPairs
from cerberank_models.first_stage.question_texts import Caches
from cerberank_models.first_stage.vector_cache import VectorCache
from cerberank_models.rank_pairs import NonFiniteScoreError, Ranking
from cerberank_models.ranking.assemble import answer_of, whole_ranking
from cerberank_models.ranking.call import CallError, RankAnswer, RankCall, Timing
from cerberank_models.ranking.prepare import Prepared, after_lexical, prepare, score_texts
from cerberank_models.token_cache import TokenCache
from cerberank_models.windows import OVERLAP_SHARE
from cerberank_service.engine.runner import not_a_number
from cerberank_service.engine.work import Ranked, Work, stage_tokens, too_late
from cerberank_service.errors import Kind, ServiceError, panics_as_errors
from cerberank_service.ranking.workers import Workers
from cerberank_service.settings import Settings
from cerberank_service.versions.loading import LiveVersion
from cerberank_service.versions.registry import Lease

LATE_SECONDS = 1.0
"""Seconds after a deadline for which the engine is still waited for, unless LATE_STEPS take longer."""
LATE_STEPS = 10.0
"""The same in predicted times of a full step."""
CHARACTERS_A_TOKEN = 4.5
"""The mean of English texts, used to estimate the lengths of pairs before the survivors are known."""
SPECIAL_TOKENS = 3
"""The special tokens of a pair, for the same estimate."""
OVERLAP_FACTOR = OVERLAP_SHARE / (OVERLAP_SHARE - 1)
"""Ratio of the tokens of a text's overlapping windows to the tokens of the text."""
VECTORS_ALONE = RatioSchedule(())
"""The drop policy of a work that computes vectors only."""


@dataclass(frozen=True, slots=True)
class Question:
    """A call on its way to an answer, with the version that answers it."""

    prepared: Prepared
    live: LiveVersion
    received: float
    """Time of the request's arrival, in seconds on the monotonic clock."""
    deadline: float | None
    """The latest time of the answer on the same clock; None for no deadline."""
    encode_seconds: float
    request: int | None = None
    """The request of several questions that it belongs to (`Work.request`)."""
    work: Work | None = None
    """The next work for the engine; None if nothing is left to run: there are no candidates, or all vectors are known
    and no pairs are read."""
    ranked: Ranked | None = None
    """The engine's ranking of the pairs; None before it."""
    queue_seconds: float = 0.0
    """The time that the works waited in the engine."""
    compute_seconds: float = 0.0

    @classmethod
    def read(
        cls,
        call: RankCall,
        live: LiveVersion,
        caches: Caches = Caches(),  # noqa: B008 - it is frozen
        *,
        received: float,
        deadline: float | None = None,
        request: int | None = None,
    ) -> Question:
        """Encode the pairs of a call, or the texts if the version has a first stage. Raises ServiceError."""
        with _as_service_errors():
            prepared = prepare(call, live.model, schedule=live.schedule, caches=caches)
        return cls(prepared, live, received, deadline, time.monotonic() - received, request)

    @property
    def in_first_stage(self) -> bool:
        """True if there is a first stage that has not scored the candidates yet."""
        return self.prepared.texts is not None and self.prepared.first_scores is None

    def begun(self) -> Question:
        """The question with its first work, after the lexical layer has dropped its share. Raises ServiceError.

        If all vectors are known, the first stage scores the candidates here, and the work is that of the survivors.
        """
        if not self.prepared.candidates:
            return self
        began = time.monotonic()
        with _as_service_errors():
            prepared = after_lexical(self.prepared)
        entered = replace(self, prepared=prepared, encode_seconds=self.encode_seconds + time.monotonic() - began)
        if prepared.texts is not None and not len(prepared.texts.encoded):
            return entered._after_texts(())
        return replace(entered, work=entered._next_work())

    def after(self, ranked: Ranked, *, follows: int | None = None) -> Question:
        """The question after the engine's result for its work. Raises ServiceError.

        `follows` is the engine's key of that work, which the next work needs to take over its room (`Work.follows`).
        """
        timed = replace(
            self,
            work=None,
            queue_seconds=self.queue_seconds + ranked.queue_seconds,
            compute_seconds=self.compute_seconds + ranked.compute_seconds,
        )
        if self.in_first_stage:
            return timed._after_texts(ranked.vectors or (), complete=ranked.complete, follows=follows)
        return replace(timed, ranked=ranked)

    def _after_texts(
        self, vectors: Sequence[Vector | None], *, complete: bool = True, follows: int | None = None
    ) -> Question:
        """The question after its first stage: all candidates are scored, and the survivors are encoded as pairs."""
        began = time.monotonic()
        with _as_service_errors():
            prepared = score_texts(self.prepared, vectors, complete=complete)
        scored = replace(self, prepared=prepared, encode_seconds=self.encode_seconds + time.monotonic() - began)
        # After the deadline, and without stages of pairs, nothing is left to run.
        return replace(scored, work=scored._next_work(follows) if len(prepared.pairs) else None)

    def _next_work(self, follows: int | None = None) -> Work:
        """The work for the texts without a vector while a first stage has not scored them, or else for the pairs."""
        prepared, texts = self.prepared, self.prepared.texts
        work = partial(
            Work,
            received=self.received,
            deadline=self.deadline,
            priority=prepared.call.priority,
            follows=follows,
            request=self.request,
        )
        if texts is None:
            return work(pairs=prepared.pairs, policy=prepared.pairs_policy)
        if prepared.first_scores is None:
            return work(
                pairs=texts.encoded,
                policy=VECTORS_ALONE,
                later_tokens=_expected_tokens(prepared)(prepared.stages_policy)[1:],
                leads=texts.leads,
                ordered=any(vector is not None for vector in texts.vectors),
            )
        dropped = len(prepared.entered) - len(prepared.survivors)
        return work(pairs=prepared.pairs, policy=prepared.pairs_policy, begins_at=1, ordered=True, dropped=dropped)

    def ranking(self) -> Ranking:
        """The ranking of all distinct candidates, after the last work."""
        return whole_ranking(self.prepared, self.ranked)


class Pipeline:
    """The steps of a question, to be called in turn: `prepare`, `rank` and `answer`."""

    def __init__(self, settings: Settings, workers: Workers) -> None:
        """Create the caches, with the sizes in `settings`."""
        self._workers = workers
        self._latency_target_ms = settings.latency_target_ms
        self._most_rows = settings.max_candidates
        self.tokens = TokenCache(settings.token_cache_bytes)
        """Tokens of questions, candidates and contexts; versions with the same tokenizer and encoding share them."""
        self.vectors = VectorCache(settings.vector_cache_bytes)
        """Vectors of questions and candidates; versions whose first stages have the same encoder share them."""

    def prepare(
        self,
        call: RankCall,
        lease: Lease,
        *,
        tenant: str = "",
        received: float,
        deadline: float | None,
        request: int | None = None,
    ) -> Question:
        """Choose the version, tokenise, and choose the drop schedule. Runs in a worker. Raises ServiceError.

        Cache entries are not shared between tenants. A question whose deadline has passed is not tokenised if the
        engine would refuse it: if others are queued there.
        """
        live = lease.take(call.model, call.version, call.question)
        if deadline is not None and time.monotonic() >= deadline and live.engine.queued_tokens:
            raise too_late(wait=1)
        caches = Caches(self.tokens, self.vectors, tenant)
        call = call.limited(self._most_rows)
        question = Question.read(call, live, caches, received=received, deadline=deadline, request=request)
        question = self._with_target_schedule(question)
        with _failures_counted(live):
            return question.begun()

    async def rank(self, question: Question, *, size: int = 0) -> Question:
        """Wait for the engine's ranking; returns the question with it.

        `size` is that of the body in bytes, by which the workers choose what they run first. If the coroutine is
        cancelled, the question is removed from the engine. Raises ServiceError.
        """
        live = question.live
        if question.work is None:
            return question
        key, ranked = await self._run(live, question.work)
        if not question.in_first_stage:
            return question.after(ranked)
        # The key keeps the room of the survivors' pairs in the engine until they come.
        try:
            scored = await self._workers.run(partial(self._scored, question, ranked, key), size=size)
            del question, ranked  # frees the vectors while the pairs are ranked
            if scored.work is not None:
                _, ranked = await self._run(live, scored.work)
                scored = scored.after(ranked)
            return scored
        finally:
            live.engine.cancel(key)

    async def embed(
        self, live: LiveVersion, texts: EncodedPairs, *, received: float, deadline: float | None
    ) -> list[Vector]:
        """The vectors of texts by a version's first stage, in their order. Raises as `rank` does."""
        no_pairs = (0.0,) * (live.checkpoint.config.scored_stages - 1)
        work = Work(pairs=texts, policy=VECTORS_ALONE, received=received, deadline=deadline, later_tokens=no_pairs)
        key, ranked = await self._run(live, work)
        live.engine.cancel(key)  # gives back the room of the pairs that could follow
        vectors = [vector for vector in ranked.vectors or () if vector is not None]
        if len(vectors) < len(texts):
            raise too_late(wait=1)
        return vectors

    @staticmethod
    async def _run(live: LiveVersion, work: Work) -> tuple[int, Ranked]:
        """The engine's key for the work, and its ranking. Raises as `rank` does."""
        ticket = live.engine.submit(work)
        try:
            async with asyncio.timeout(_longest_wait(live, work)):
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

    @staticmethod
    def _scored(question: Question, ranked: Ranked, key: int) -> Question:
        """The question after the first stage in the engine. Runs in a worker. Raises ServiceError."""
        with _failures_counted(question.live):
            return question.after(ranked, follows=key)

    def answer(self, question: Question, request_id: str, *, calibrated_everywhere: bool = False) -> RankAnswer:
        """The answer to a ranked question. Runs in a worker, because it may have 10,000 results."""
        answer = answer_of(question.prepared, question.ranking())
        timing = Timing(
            encode=1000.0 * question.encode_seconds,
            queue=1000.0 * question.queue_seconds,
            compute=1000.0 * question.compute_seconds,
            total=1000.0 * (time.monotonic() - question.received),
        )
        return replace(answer, request_id=request_id, timing=timing, calibrated_everywhere=calibrated_everywhere)

    def _with_target_schedule(self, question: Question) -> Question:
        """Use the tuned schedule that meets the latency target, if there is one and the call has no drop ratios."""
        prepared, live, call = question.prepared, question.live, question.prepared.call
        target = call.latency_target_ms or self._latency_target_ms
        config = live.checkpoint.config
        if call.drop_ratio is not None or not target or not config.tuned_schedules or not prepared.candidates:
            return question

        tokens_by_stage = _expected_tokens(prepared)

        def seconds(policy: DropPolicy) -> float:
            return live.engine.predict(tokens_by_stage(policy), call.priority)

        policy = choose_schedule(
            config, call.top_k or 1, seconds, target / 1000.0 - question.encode_seconds, lexical=call.lexical_ratio
        )
        return replace(question, prepared=replace(prepared, policy=policy))


def choose_schedule(
    config: RankerConfig,
    keep: int,
    seconds: Callable[[DropPolicy], float],
    target: float,
    *,
    lexical: float | None = None,
) -> DropPolicy:
    """The tuned schedule that drops least among those whose predicted `seconds` are at most `target`.

    If none meets the target, it is the fastest one. At least `keep` candidates survive. `lexical` replaces the lexical
    ratios of the schedules. There must be a schedule.
    """
    for entry in sorted(config.tuned_schedules, key=lambda entry: -entry.cost):
        policy = config.drop_policy(lexical=lexical, default=entry, keep=keep)
        if seconds(policy) <= target:
            break
    return policy


def _expected_tokens(prepared: Prepared) -> Callable[[DropPolicy], tuple[float, ...]]:
    """A function that gives the expected tokens of each scored stage by a drop policy, before the engine ran."""
    if prepared.texts is None:
        return partial(stage_tokens, prepared.pairs)
    # The tokens of the cold texts, then those of the pairs that survive.
    texts, mean, count = prepared.texts.tokens, pair_tokens(prepared), len(prepared.entered)

    def expected(policy: DropPolicy) -> tuple[float, ...]:
        entering, *later = policy.expected_alive(count)
        return (texts * entering / count, *(rows * mean for rows in later))

    return expected


def pair_tokens(prepared: Prepared) -> float:
    """Estimated tokens of a pair before it is read, from the characters of the texts."""
    call, longest = prepared.call, prepared.model.checkpoint.config.encoding.max_length
    characters = sum(len(candidate.text) for candidate in prepared.candidates)
    mean = characters / len(prepared.candidates) / CHARACTERS_A_TOKEN
    if call.most_tokens is not None:
        mean = min(mean, float(call.most_tokens))
    tokens = SPECIAL_TOKENS + len(call.question) / CHARACTERS_A_TOKEN + mean
    if call.windowing is None or tokens <= longest:
        return min(float(longest), tokens)
    return longest * min(float(call.windowing.most), OVERLAP_FACTOR * tokens / longest)


def _longest_wait(live: LiveVersion, work: Work) -> float | None:
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
def _as_service_errors() -> Iterator[None]:
    """Raise the errors of a call, and of a first stage that scores no number, as ServiceError."""
    try:
        yield
    except CallError as error:
        raise ServiceError(Kind.INVALID, str(error), tokens=error.tokens) from error
    except CalibrationError as error:
        raise ServiceError(Kind.INVALID, str(error)) from error
    except NonFiniteScoreError as error:
        raise not_a_number() from error


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
