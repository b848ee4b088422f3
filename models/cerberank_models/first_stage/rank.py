"""Ranks one question's candidates through the first stage and the stages of pairs, without the service's engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import Backend, Scores, Vector
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.drop import DropPolicy, check_exits, order
from cerberank_models.encoding import Candidate, EncodedPairs, PairEncoder, concat_pairs
from cerberank_models.first_stage.contract import KnownVectors, VectorBackend
from cerberank_models.first_stage.open import open_encoder, open_first_stage, open_scorer
from cerberank_models.first_stage.scorer import FirstStageScorer
from cerberank_models.rank_pairs import NonFiniteScoreError, Ranking, rank_pairs
from cerberank_models.text_encoding import TextEncoder
from cerberank_models.windows import NO_SPAN, Windowing


@dataclass(frozen=True, kw_only=True, slots=True)
class TextScores:
    """The scores of a question's candidates, and the facts about reading them."""

    scores: Scores
    """Shape [n]: the score of each candidate."""
    truncated: NDArray[np.bool_]
    """Shape [n]: True for a candidate whose end was not read; False if its vector was known."""
    question_truncated: bool
    tokens: int
    """The number of tokens that were encoded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstStage:
    """A first stage that is ready to score."""

    backend: VectorBackend
    encoder: TextEncoder
    scorer: FirstStageScorer
    known: KnownVectors | None = None
    """Vectors that were computed before."""

    def read(self, question: str, texts: Sequence[str]) -> TextScores:
        """Encode the texts whose vectors are not known, and score all of them. Raises NonFiniteScoreError for NaN."""
        found: list[Vector | None] = [None] * len(texts) if self.known is None else self.known.find(texts)
        cold = [row for row, vector in enumerate(found) if vector is None]
        asked, said = self.encoder.questions([question]), self.encoder.candidates([texts[row] for row in cold])
        encoded = concat_pairs([asked, said])
        vectors = self.backend.encode(encoded)
        for row, vector in zip(cold, vectors[1:], strict=True):
            found[row] = vector
        scores = self.scorer(vectors[0], [vector for vector in found if vector is not None])
        if not np.isfinite(scores).all():
            raise NonFiniteScoreError("the first stage gave a score that is not a number")
        truncated = np.zeros(len(texts), dtype=np.bool_)
        truncated[cold] = said.truncated
        return TextScores(
            scores=scores, truncated=truncated, question_truncated=bool(asked.truncated[0]), tokens=encoded.tokens
        )


def open_offline(
    checkpoint: Checkpoint,
    *,
    kind: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    known: KnownVectors | None = None,
) -> FirstStage:
    """Open the checkpoint's first stage, with the arguments and errors of `open_first_stage`."""
    backend = open_first_stage(checkpoint, kind=kind, precision=precision, threads=threads, device=device)
    return FirstStage(backend=backend, encoder=open_encoder(checkpoint), scorer=open_scorer(checkpoint), known=known)


@dataclass(frozen=True, kw_only=True, slots=True)
class TextRanking:
    """The result of ranking texts: the ranking, in which the first stage is stage 0, and the facts about reading."""

    ranking: Ranking
    truncated: NDArray[np.bool_]
    """Shape [n]: True if the candidate was cut in its pair, or as a text if there are no stages of pairs. False if the
    first stage dropped it, or if its vector was known."""
    question_truncated: bool
    pairs: EncodedPairs | None
    """The pairs of the survivors; None if the first stage is the only stage."""
    tokens: int
    """The number of tokens of all texts and pairs that were computed."""


def rank_texts(
    first: FirstStage,
    backend: Backend[Any],
    encoder: PairEncoder,
    question: str,
    candidates: Sequence[Candidate],
    *,
    policy: DropPolicy,
    windowing: Windowing | None = None,
    until: float | None = None,
) -> TextRanking:
    """Score all texts, drop candidates by stage 0 of the policy, and rank the survivors in the stages of pairs, if any.

    With a `windowing`, the stages of pairs read survivors that do not fit in windows; the first stage always cuts
    texts. `until` has the same meaning as in `rank_pairs`.

    Raises ValueError if there are no candidates or the policy has a different number of stages, NonFiniteScoreError.
    """
    if not candidates:
        raise ValueError("there must be at least one candidate")
    check_exits(backend.config.scored_stages, len(policy.expected_alive(len(candidates))) - 1)
    read = first.read(question, [candidate.text for candidate in candidates])
    scores = read.scores
    if not backend.config.reads_pairs:
        reached = np.zeros(len(candidates), dtype=np.int64)
        alone = Ranking(order=order(reached, scores), scores=scores, stages=reached, head_scores=None)
        return TextRanking(
            ranking=alone,
            truncated=read.truncated,
            question_truncated=read.question_truncated,
            pairs=None,
            tokens=read.tokens,
        )
    rows = policy.survivors(0, scores)
    pairs = encoder.encode(question, [candidates[row] for row in rows.tolist()], windowing=windowing)
    ranking = rank_pairs(backend, pairs, policy.after_first(), until=until)
    stages, heads = np.zeros(len(candidates), dtype=np.int64), ranking.head_scores
    scores[rows], stages[rows] = ranking.scores, ranking.stages + 1
    if heads is not None:
        heads = np.full((len(candidates), heads.shape[1]), np.nan)
        heads[rows] = ranking.head_scores
    spans = None
    if ranking.spans is not None:
        spans = np.full((len(candidates), 2), NO_SPAN, dtype=np.int64)
        spans[rows] = ranking.spans
    whole = replace(ranking, order=order(stages, scores), scores=scores, stages=stages, head_scores=heads, spans=spans)
    truncated = np.zeros(len(candidates), dtype=np.bool_)
    truncated[rows] = pairs.truncated_candidates
    return TextRanking(
        ranking=whole,
        truncated=truncated,
        question_truncated=pairs.question_truncated,
        pairs=pairs,
        tokens=read.tokens + pairs.tokens,
    )
