"""The first stage of a question: a bi-encoder scores the candidates by vectors, and the survivors are read as pairs.

1. `read_texts` (worker) looks up vectors, and tokenises the cold texts, which have no vector in the cache or the store.
2. The engine computes the vectors of the cold texts; this step is skipped without cold texts.
3. `score_texts` (worker) scores all candidates, drops by the first ratio, and encodes the survivors as pairs.
4. The engine ranks the pairs.
5. `whole_ranking` (worker) merges both results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import Scores, Vector
from cerberank_models.drop import UNSCORED, DropPolicy, RatioSchedule, order
from cerberank_models.encoding import EncodedPairs, concat_pairs
from cerberank_models.first_stage.cache import VectorCache
from cerberank_models.reading import cut_warnings
from cerberank_models.token_cache import TokenCache
from cerberank_models.tokens import replace_surrogates
from cerberank_models.windows import NO_SPAN, OVERLAP_SHARE
from cerberank_service.call import RankCall
from cerberank_service.engine.runner import not_a_number
from cerberank_service.engine.work import Ranked
from cerberank_service.ranking.prepare import NO_PAIRS, Prepared, read_pairs, refused_truncation
from cerberank_service.versions.loading import LiveFirstStage, LiveVersion

CHARACTERS_A_TOKEN = 4.5
"""The mean of English texts, used to estimate the lengths of pairs before the survivors are known."""
SPECIAL_TOKENS = 3
OVERLAPPING = OVERLAP_SHARE / (OVERLAP_SHARE - 1)
"""Ratio of the tokens of a text's overlapping windows to the tokens of the text."""
VECTORS_ALONE = RatioSchedule(())
"""The drop policy of a work that computes vectors only."""
NOBODY: NDArray[np.int64] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Caches:
    """The caches of vectors and tokens, separate for each tenant; a cache that is None is not used."""

    tokens: TokenCache | None = None
    vectors: VectorCache | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Texts:
    """The known vectors of a question's texts, and the texts whose vectors the engine must compute."""

    question: Vector | None
    vectors: tuple[Vector | None, ...]
    """The vector of each distinct candidate; None for a cold one, whose vector is not known yet."""
    cold: Mapping[str, Sequence[int]]
    """The cold texts, each with the candidates that have this text."""
    encoded: EncodedPairs
    """The tokens of the question's text, if its vector is not known, followed by the cold texts."""
    pair_tokens: float
    """Estimated tokens of a pair: its characters divided by `CHARACTERS_A_TOKEN`."""
    sources: Mapping[str, int]
    """Numbers of texts, the question included, whose vectors come from the cache, the store and the encoder."""

    @property
    def leads(self) -> bool:
        """True if the question's own text must be encoded."""
        return len(self.encoded) > len(self.cold)

    def released(self) -> Texts:
        """This object without vectors and tokens, whose memory is freed because only the scores are needed later."""
        return replace(self, question=None, vectors=(), cold={}, encoded=NO_PAIRS)

    def stage_tokens(self, policy: DropPolicy) -> tuple[float, ...]:
        """Expected tokens of each scored stage: those of the cold texts, then those of the pairs that survive."""
        alive = policy.expected_alive(len(self.vectors))
        return (float(self.encoded.tokens), *(rows * self.pair_tokens for rows in alive[1:]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """The first stage's result for n distinct candidates."""

    scores: Scores
    """Shape [n]; NaN for candidates whose vector was not computed before the deadline."""
    alive: NDArray[np.int64]
    """The candidates to read as pairs; empty after the deadline, and if the checkpoint reads no pairs."""
    texts: Ranked
    """The engine's result for the cold texts, without their vectors."""


def read_texts(call: RankCall, prepared: Prepared, live: LiveVersion, first: LiveFirstStage, caches: Caches) -> Texts:
    """Look up the vectors of a folded call's texts, and tokenise the cold texts. Runs in a worker.

    If a call refuses truncation, all its candidates are tokenised first, as pairs if the checkpoint reads pairs. The
    call is then refused with ServiceError (422) even if the text that is too long would have been dropped.
    """
    rows_of: dict[str, list[int]] = {}
    for row, candidate in enumerate(prepared.unique):
        rows_of.setdefault(replace_surrogates(candidate.text), []).append(row)
    question = replace_surrogates(call.question)
    if call.refuse_truncation and live.checkpoint.config.reads_pairs:
        read_pairs(call, prepared, live.checkpoint, live.encoder, cache=caches.tokens)
    elif call.refuse_truncation:
        whole = first.encoder.questions([question], caches.tokens, partition=call.tenant)
        read = first.encoder.candidates(list(rows_of), caches.tokens, partition=call.tenant)
        cut, question_cut = int(read.truncated.sum()), bool(whole.truncated[0])
        tokens = whole.tokens + read.tokens
        texts_warnings(call, prepared, first, cut=cut, question_cut=question_cut, tokens=tokens)
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
    call: RankCall, prepared: Prepared, texts: Texts, live: LiveVersion, caches: Caches, *, ranked: Ranked
) -> tuple[Prepared, Scored]:
    """Score all candidates, drop, and encode the survivors as pairs if the checkpoint reads pairs. Runs in a worker.

    `ranked` has the computed vectors, which are added to the cache; it is `NO_WORK` if all vectors were known. After
    the deadline no pairs are encoded. Raises ServiceError (500) for a score that is not a number, and as `read_pairs`
    does.
    """
    first = live.first
    assert first is not None, "a version without a first stage reads no texts"
    computed = list(ranked.vectors or [None] * len(texts.encoded))
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
    ended = replace(ranked, vectors=None)
    if not ended.complete:
        return prepared, Scored(scores=scores, alive=NOBODY, texts=ended)
    if not live.checkpoint.config.reads_pairs:
        return _ranked_alone(call, prepared, texts, first), Scored(scores=scores, alive=NOBODY, texts=ended)
    alive = prepared.policy.survivors(0, scores)
    read = read_pairs(call, prepared, live.checkpoint, live.encoder, rows=alive, cache=caches.tokens)
    return read, Scored(scores=scores, alive=alive, texts=ended)


def texts_warnings(
    call: RankCall, prepared: Prepared, first: LiveFirstStage, *, cut: int, question_cut: bool, tokens: int
) -> tuple[str, ...]:
    """The warnings of a call that is ranked by vectors alone, when `cut` of its candidates were cut.

    `tokens` are those of its texts.
    Raises ServiceError (422) if a text was cut and the call refuses truncation.
    """
    warnings = cut_warnings(question=question_cut, candidates=cut, encoding=first.config.encoding)
    if call.refuse_truncation and warnings:
        raise refused_truncation(warnings, tokens)
    return (*warnings, *prepared.warnings)


def _ranked_alone(call: RankCall, prepared: Prepared, texts: Texts, first: LiveFirstStage) -> Prepared:
    """The call with the marks and warnings of cut texts.

    Texts with a known vector are not tokenised, so they are never reported as cut.
    """
    cut, truncated = texts.encoded.truncated, np.zeros(len(prepared.unique), np.bool_)
    for rows, long in zip(texts.cold.values(), cut[int(texts.leads) :].tolist(), strict=True):
        truncated[list(rows)] = long
    number = int(truncated[prepared.pair_of].sum())
    question_cut, tokens = bool(texts.leads and cut[0]), texts.encoded.tokens
    warnings = texts_warnings(call, prepared, first, cut=number, question_cut=question_cut, tokens=tokens)
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
"""Stands for the engine's result if there is nothing to compute: all vectors are known, or no pairs are read."""


def whole_ranking(scored: Scored, ranked: Ranked) -> Ranked:
    """The ranking of all candidates, with the first stage as stage 0.

    `ranked` is the engine's last result: for the pairs, or for the texts if no pair was read. The scores of pairs are
    used only if all pairs have one. After a deadline the pairs with a score are the longest, not the best.
    """
    scores, stages = scored.scores.copy(), np.where(np.isnan(scored.scores), UNSCORED, 0)
    heads = spans = None
    ran = [scored.texts, ranked] if len(scored.alive) else [ranked]
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
    """The cached vectors, by text; texts without one are absent."""
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
