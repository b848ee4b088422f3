"""A question's first stage: the vectors that are known, the texts that are not, the scores, and who is read as a pair.

read_texts (worker) -> engine, for cold texts alone -> score_texts (worker) -> engine -> whole_ranking (worker)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.contract import Scores, Vector
from cerberank_models.drop import UNSCORED, DropPolicy, RatioSchedule, order
from cerberank_models.encoding import EncodedPairs, concat_pairs
from cerberank_models.first_stage.cache import VectorCache
from cerberank_models.reading import cut_warnings
from cerberank_models.token_cache import TokenCache
from cerberank_models.tokens import replace_surrogates
from cerberank_models.windows import NO_SPAN, OVERLAP_SHARE
from cerberank_service.call import RankCall
from cerberank_service.engine.runner import not_a_number
from cerberank_service.engine.work import Ranked, Work
from cerberank_service.ranking.prepare import NO_PAIRS, Prepared, read_pairs, refused_truncation
from cerberank_service.versions.loading import LiveFirstStage, LiveVersion

CHARACTERS_A_TOKEN = 4.5
"""The mean of English texts, by which pairs' lengths are estimated until the survivors are known."""
SPECIAL_TOKENS = 3
OVERLAPPING = OVERLAP_SHARE / (OVERLAP_SHARE - 1)
"""Tokens of a text's windows for each of its own."""
VECTORS_ALONE = RatioSchedule(())
"""The policy of a work that ends with its first stage."""
NOBODY: NDArray[np.int64] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Caches:
    """Vectors and tokens of earlier calls; None is not used.

    Vectors and tokens are found and kept in the part of a tenant.
    """

    tokens: TokenCache | None = None
    vectors: VectorCache | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Texts:
    """The vectors of a question's texts so far, and those that the engine must compute."""

    question: Vector | None
    vectors: tuple[Vector | None, ...]
    """The vector of each distinct candidate; None for one that is cold."""
    cold: Mapping[str, Sequence[int]]
    """The candidates of each distinct text that must be encoded."""
    encoded: EncodedPairs
    """The question's text, if its vector is not known, then the cold texts."""
    pair_tokens: float
    """Estimated tokens of a pair: their characters divided by `CHARACTERS_A_TOKEN`."""
    sources: Mapping[str, int]
    """Numbers of texts whose vectors came from the cache, the store, and the encoder; the question's is one of them."""

    @property
    def leads(self) -> bool:
        """True if the question's own text must be encoded."""
        return len(self.encoded) > len(self.cold)

    def released(self) -> Texts:
        """First-stage figures for logs and metrics; vectors and tokens are dropped, because the scores are all that is
        needed later.
        """
        return replace(self, question=None, vectors=(), cold={}, encoded=NO_PAIRS)

    def stage_tokens(self, policy: DropPolicy) -> tuple[float, ...]:
        """Expected tokens of each scored stage: the cold texts', then those of as many pairs as the policy leaves."""
        alive = policy.expected_alive(len(self.vectors))
        return (float(self.encoded.tokens), *(rows * self.pair_tokens for rows in alive[1:]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """The first stage's result for n distinct candidates."""

    scores: Scores
    """Shape [n]; NaN where the deadline came before the vector."""
    alive: NDArray[np.int64]
    """The candidates that are read as pairs; none after the deadline, and where the first stage ranks alone."""
    texts: Ranked | None
    """The engine's result for the cold texts, without their vectors; None where there were none."""


def read_texts(call: RankCall, prepared: Prepared, live: LiveVersion, first: LiveFirstStage, caches: Caches) -> Texts:
    """Look up the vectors of a folded call's texts, and tokenise the texts without one. For a worker.

    A call that refuses truncation has all its candidates read as pairs before, or where there are none as texts, so
    that it is refused whoever would have survived. Raises ServiceError (422) then.
    """
    rows_of: dict[str, list[int]] = {}
    for row, candidate in enumerate(prepared.unique):
        rows_of.setdefault(replace_surrogates(candidate.text), []).append(row)
    question = replace_surrogates(call.question)
    if call.refuse_truncation and live.checkpoint.config.reads_pairs:
        read_pairs(call, prepared, live.checkpoint, live.encoder, cache=caches.tokens)
    elif call.refuse_truncation:
        asked_cut = first.encoder.questions([question], caches.tokens, partition=call.tenant).truncated
        cut = first.encoder.candidates(list(rows_of), caches.tokens, partition=call.tenant).truncated
        texts_warnings(call, prepared, first, cut=int(cut.sum()), question_cut=bool(asked_cut[0]))
    found = _cached(caches, first, call, "candidate", list(rows_of))
    asked = _cached(caches, first, call, "question", [question]).get(question)
    from_cache = len(found) + (asked is not None)
    if first.stored is not None and (cold := [text for text in rows_of if text not in found]):
        stored = zip(cold, first.stored.find(cold), strict=True)
        found.update((text, vector) for text, vector in stored if vector is not None)
    cold_rows = {text: rows for text, rows in rows_of.items() if text not in found}
    vectors: list[Vector | None] = [None] * len(prepared.unique)
    for text, vector in found.items():
        for row in rows_of[text]:
            vectors[row] = vector
    parts = []
    if asked is None:
        parts.append(first.encoder.questions([question], caches.tokens, partition=call.tenant))
    if cold_rows:
        parts.append(first.encoder.candidates(list(cold_rows), caches.tokens, partition=call.tenant))
    encoded = concat_pairs(parts) if parts else NO_PAIRS
    return Texts(
        question=asked,
        vectors=tuple(vectors),
        cold=cold_rows,
        encoded=encoded,
        pair_tokens=_pair_tokens(call, prepared, live.checkpoint.config.encoding.max_length),
        sources={
            "cache": from_cache,
            "store": len(found) + (asked is not None) - from_cache,
            "computed": len(encoded),
        },
    )


def score_texts(
    call: RankCall, prepared: Prepared, texts: Texts, live: LiveVersion, caches: Caches, *, ranked: Ranked | None = None
) -> tuple[Prepared, Scored]:
    """Score all candidates, drop, and encode the survivors as pairs, where the checkpoint reads pairs. For a worker.

    `ranked` has the computed vectors, which are kept; None where none was missing. After the deadline no pair is read.
    Raises ServiceError (500) for a score that is not a number, and as `read_pairs` does.
    """
    first = live.first
    assert first is not None, "a version without a first stage reads no texts"
    computed = list(ranked.vectors or [None] * len(texts.encoded)) if ranked is not None else []
    question = computed.pop(0) if texts.leads and computed else texts.question
    vectors = list(texts.vectors)
    for rows, vector in zip(texts.cold.values(), computed, strict=True):
        for row in rows:
            vectors[row] = vector
    _keep(caches, first, call, "candidate", dict(zip(texts.cold, computed, strict=True)))
    _keep(caches, first, call, "question", {replace_surrogates(call.question): question} if texts.leads else {})
    scores = np.full(len(vectors), np.nan)
    known = [row for row, vector in enumerate(vectors) if vector is not None] if question is not None else []
    if question is not None and known:
        scores[known] = first.scorer(question, [vector for vector in vectors if vector is not None])
        if not np.isfinite(scores[known]).all():
            raise not_a_number()
    ended = None if ranked is None else replace(ranked, vectors=None)
    if ended is not None and not ended.complete:
        return prepared, Scored(scores=scores, alive=NOBODY, texts=ended)
    if not live.checkpoint.config.reads_pairs:
        return _ranked_alone(call, prepared, texts, first), Scored(scores=scores, alive=NOBODY, texts=ended)
    alive = prepared.policy.survivors(0, scores)
    read = read_pairs(call, prepared, live.checkpoint, live.encoder, rows=alive, cache=caches.tokens)
    return read, Scored(scores=scores, alive=alive, texts=ended)


def texts_warnings(
    call: RankCall, prepared: Prepared, first: LiveFirstStage, *, cut: int, question_cut: bool
) -> tuple[str, ...]:
    """The warnings of a call whose texts are read alone, where so many of its candidates were cut.

    Raises ServiceError (422) where it refuses that.
    """
    warnings = cut_warnings(question=question_cut, candidates=cut, encoding=first.config.encoding)
    if call.refuse_truncation and warnings:
        raise refused_truncation(warnings)
    return (*warnings, *prepared.warnings)


def _ranked_alone(call: RankCall, prepared: Prepared, texts: Texts, first: LiveFirstStage) -> Prepared:
    """The call with what was cut of its texts. Of a text whose vector was known nobody looks how long it is."""
    cut, truncated = texts.encoded.truncated, np.zeros(len(prepared.unique), np.bool_)
    for rows, long in zip(texts.cold.values(), cut[int(texts.leads) :].tolist(), strict=True):
        truncated[list(rows)] = long
    number = int(truncated[prepared.pair_of].sum())
    warnings = texts_warnings(call, prepared, first, cut=number, question_cut=bool(texts.leads and cut[0]))
    return replace(prepared, truncated=truncated, warnings=warnings)


NO_WORK = Ranked(
    order=NOBODY,
    scores=np.empty(0),
    stages=NOBODY,
    heads=None,
    complete=True,
    queue_seconds=0.0,
    compute_seconds=0.0,
)
"""The engine's result for a question whose vectors were all known, where the first stage ranks alone."""


def work_of(
    prepared: Prepared,
    texts: Texts | None,
    scored: Scored | None,
    *,
    received: float,
    deadline: float | None,
    priority: int,
    follows: int | None = None,
) -> Work:
    """The next work of a question: its pairs, or with a first stage its cold texts until they are `scored`."""
    if texts is not None and scored is None:
        return Work(
            pairs=texts.encoded,
            policy=VECTORS_ALONE,
            received=received,
            deadline=deadline,
            priority=priority,
            later_tokens=texts.stage_tokens(prepared.policy)[1:],
            leads=texts.leads,
            ordered=any(vector is not None for vector in texts.vectors),
        )
    if scored is None:
        return Work(
            pairs=prepared.pairs, policy=prepared.policy, received=received, deadline=deadline, priority=priority
        )
    return Work(
        pairs=prepared.pairs,
        policy=prepared.policy.after_first(),
        received=received,
        deadline=deadline,
        priority=priority,
        first_stage=1,
        follows=follows,
        ordered=True,
        dropped=len(scored.scores) - len(scored.alive),
    )


def whole_ranking(scored: Scored, ranked: Ranked) -> Ranked:
    """The ranking of all candidates, with the first stage as stage 0, from the engine's last result.

    That is the ranking of the pairs, or the result for the texts, after a deadline or without pairs. Pairs count only
    once all of them have a score: those that a deadline left with one are the longest, not the best.
    """
    scores, stages = scored.scores.copy(), np.where(np.isnan(scored.scores), UNSCORED, 0)
    heads = spans = None
    ran = [scored.texts, ranked] if scored.texts is not None and len(scored.alive) else [ranked]
    if len(scored.alive) and not (ranked.stages == UNSCORED).any():
        scores[scored.alive], stages[scored.alive] = ranked.scores, ranked.stages + 1
        if ranked.heads is not None:
            heads = np.full((len(scores), ranked.heads.shape[1]), np.nan)
            heads[scored.alive] = ranked.heads
        if ranked.spans is not None:
            spans = np.full((len(scores), 2), NO_SPAN, dtype=np.int64)
            spans[scored.alive] = ranked.spans
    return Ranked(
        order=order(stages, np.nan_to_num(scores)),
        scores=scores,
        stages=stages,
        heads=heads,
        complete=ranked.complete,
        queue_seconds=sum(each.queue_seconds for each in ran),
        compute_seconds=sum(each.compute_seconds for each in ran),
        spans=spans,
    )


def _scope(first: LiveFirstStage, call: RankCall, kind: str) -> str:
    return f"{first.config.encoder} {first.precision} {kind} {call.tenant}"


def _cached(
    caches: Caches, first: LiveFirstStage, call: RankCall, kind: str, texts: Sequence[str]
) -> dict[str, Vector]:
    """The cached vectors of those `texts` that have one."""
    if caches.vectors is None or not texts:
        return {}
    found = zip(texts, caches.vectors.find(_scope(first, call, kind), texts), strict=True)
    return {text: vector for text, vector in found if vector is not None}


def _keep(caches: Caches, first: LiveFirstStage, call: RankCall, kind: str, made: Mapping[str, Vector | None]) -> None:
    known = {text: vector for text, vector in made.items() if vector is not None}
    if caches.vectors is not None and known:
        caches.vectors.put(_scope(first, call, kind), list(known), list(known.values()))


def _pair_tokens(call: RankCall, prepared: Prepared, longest: int) -> float:
    mean = sum(len(candidate.text) for candidate in prepared.unique) / len(prepared.unique) / CHARACTERS_A_TOKEN
    if call.most_tokens is not None:
        mean = min(mean, float(call.most_tokens))
    tokens = SPECIAL_TOKENS + len(call.question) / CHARACTERS_A_TOKEN + mean
    if call.windowing is None or tokens <= longest:
        return min(float(longest), tokens)
    return longest * min(float(call.windowing.most), OVERLAPPING * tokens / longest)
