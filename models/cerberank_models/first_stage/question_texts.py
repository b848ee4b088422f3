"""A first stage that scores texts: it looks up known vectors, and scores a question's candidates by all of them.

The vectors in between are computed by its backend: at once without a service, or by the thread that owns the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import Scores, Vector
from cerberank_models.encoding import NO_PAIRS, EncodedPairs, concat_pairs
from cerberank_models.first_stage.scorer import FirstStageScorer
from cerberank_models.first_stage.vector_backend import VectorBackend
from cerberank_models.first_stage.vector_cache import VectorCache
from cerberank_models.first_stage.vector_store import VectorStore
from cerberank_models.rank_pairs import NonFiniteScoreError
from cerberank_models.text_config import TextRankerConfig
from cerberank_models.text_encoding import TextEncoder
from cerberank_models.token_cache import TokenCache
from cerberank_models.tokens import replace_surrogates


@dataclass(frozen=True, slots=True)
class Caches:
    """The caches of tokens and vectors for one caller; a cache that is None is not used."""

    tokens: TokenCache | None = None
    vectors: VectorCache | None = None
    tenant: str = ""
    """The owner of the entries, which no other tenant finds."""


NO_CACHES = Caches()


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionTexts:
    """The known vectors of a question and its n candidates, and the texts whose vectors must be computed."""

    text: str
    """The question, which has no lone surrogates."""
    question: Vector | None
    """The question's vector; None if it is not known yet."""
    vectors: tuple[Vector | None, ...]
    """The vector of each candidate; None for a cold one, whose vector is not known yet."""
    cold: Mapping[str, Sequence[int]]
    """The cold texts, each with the candidates that have this text."""
    encoded: EncodedPairs
    """The tokens of the question, if its vector is not known, followed by those of the cold texts."""
    tokens: int
    """The number of tokens of `encoded`."""
    truncated: NDArray[np.bool_]
    """Shape [n]: True for a cold candidate whose end is not read."""
    question_truncated: bool
    sources: Mapping[str, int]
    """Numbers of texts, the question included, whose vectors come from the cache, the store and the encoder."""

    @property
    def leads(self) -> bool:
        """True if the question's own text must be encoded."""
        return len(self.encoded) > len(self.cold)

    def select(self, rows: NDArray[np.int64]) -> QuestionTexts:
        """The texts of only the candidates `rows`, ascending; without those cold texts that no other candidate has."""
        place_of = {row: place for place, row in enumerate(rows.tolist())}
        kept = {text: [place_of[row] for row in of_text if row in place_of] for text, of_text in self.cold.items()}
        stays = np.array([True] * self.leads + [bool(of_text) for of_text in kept.values()], np.bool_)
        encoded = self.encoded.select(np.flatnonzero(stays))
        return replace(
            self,
            vectors=tuple(self.vectors[row] for row in rows.tolist()),
            cold={text: of_text for text, of_text in kept.items() if of_text},
            encoded=encoded,
            tokens=encoded.tokens,
            truncated=self.truncated[rows],
            sources={**self.sources, "computed": len(encoded)},
        )

    def released(self) -> QuestionTexts:
        """This object without vectors and tokens, whose memory is freed because they were scored."""
        return replace(self, question=None, vectors=(), cold={}, encoded=NO_PAIRS)


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstStage:
    """A first stage that is ready to score. Threads may share all of it but `backend`."""

    backend: VectorBackend
    """Computes vectors, in the thread that runs the stages of pairs."""
    encoder: TextEncoder
    scorer: FirstStageScorer
    stored: VectorStore | None = None
    """Vectors of candidates that were computed before; None without a store of them."""

    @property
    def config(self) -> TextRankerConfig:
        """The bi-encoder's shape."""
        return self.backend.config

    def read(self, question: str, texts: Sequence[str], caches: Caches = NO_CACHES) -> QuestionTexts:
        """Look up the vectors of a question and its candidates, and tokenise the texts that have none."""
        question = replace_surrogates(question)
        rows_of: dict[str, list[int]] = {}
        for row, text in enumerate(texts):
            rows_of.setdefault(replace_surrogates(text), []).append(row)
        # Vectors in the cache, then those in the store.
        vector_of = self._cached(caches, "candidate", list(rows_of))
        question_vector = self._cached(caches, "question", [question]).get(question)
        from_cache = len(vector_of) + (question_vector is not None)
        if self.stored is not None and (missing := [text for text in rows_of if text not in vector_of]):
            stored = zip(missing, self.stored.find(missing), strict=True)
            vector_of.update((text, vector) for text, vector in stored if vector is not None)
        vectors: list[Vector | None] = [None] * len(texts)
        for text, vector in vector_of.items():
            for row in rows_of[text]:
                vectors[row] = vector
        # The tokens of all other texts, and which of these are cut.
        cold = {text: rows for text, rows in rows_of.items() if text not in vector_of}
        parts = []
        if question_vector is None:
            parts.append(self.encoder.questions([question], caches.tokens, partition=caches.tenant))
        if cold:
            parts.append(self.encoder.candidates(list(cold), caches.tokens, partition=caches.tenant))
        encoded = concat_pairs(parts) if parts else NO_PAIRS
        truncated = np.zeros(len(texts), np.bool_)
        for rows, cut in zip(cold.values(), encoded.truncated[int(question_vector is None) :].tolist(), strict=True):
            truncated[rows] = cut
        return QuestionTexts(
            text=question,
            question=question_vector,
            vectors=tuple(vectors),
            cold=cold,
            encoded=encoded,
            tokens=encoded.tokens,
            truncated=truncated,
            question_truncated=question_vector is None and bool(encoded.truncated[0]),
            sources={
                "cache": from_cache,
                "store": len(vector_of) + (question_vector is not None) - from_cache,
                "computed": len(encoded),
            },
        )

    def scores(self, texts: QuestionTexts, computed: Sequence[Vector | None], caches: Caches = NO_CACHES) -> Scores:
        """The scores `[n]` of the candidates, NaN for those without a vector; new vectors are added to the cache.

        `computed` has a vector for each of `texts.encoded`, or None for those that were not computed; it may be empty
        if none were. Raises NonFiniteScoreError for a score that is not a number.
        """
        fresh = list(computed or [None] * len(texts.encoded))
        question = fresh.pop(0) if texts.leads else texts.question
        vectors = list(texts.vectors)
        for rows, vector in zip(texts.cold.values(), fresh, strict=True):
            for row in rows:
                vectors[row] = vector
        self._cache(caches, "candidate", dict(zip(texts.cold, fresh, strict=True)))
        self._cache(caches, "question", {texts.text: question} if texts.leads else {})
        scores = np.full(len(vectors), np.nan)
        rows = [row for row, vector in enumerate(vectors) if vector is not None]
        if question is not None and rows:
            scores[rows] = self.scorer(question, [vector for vector in vectors if vector is not None])
            if not np.isfinite(scores[rows]).all():
                raise NonFiniteScoreError("the first stage gave a score that is not a number")
        return scores

    def compute(self, texts: QuestionTexts) -> Scores:
        """The scores `[n]` of the candidates, after computing the missing vectors here. Raises NonFiniteScoreError."""
        return self.scores(texts, self.backend.encode(texts.encoded))

    def _scope(self, caches: Caches, kind: str) -> str:
        part = self.config.encoding.question_part if kind == "question" else ""
        return f"{self.config.encoder} {self.backend.precision} {kind} {part} {caches.tenant}"

    def _cached(self, caches: Caches, kind: str, texts: Sequence[str]) -> dict[str, Vector]:
        """The cached vectors, by text; texts without one are absent."""
        if caches.vectors is None or not texts:
            return {}
        vectors = caches.vectors.find(self._scope(caches, kind), texts)
        return {text: vector for text, vector in zip(texts, vectors, strict=True) if vector is not None}

    def _cache(self, caches: Caches, kind: str, vectors: Mapping[str, Vector | None]) -> None:
        computed = {text: vector for text, vector in vectors.items() if vector is not None}
        if caches.vectors is not None and computed:
            caches.vectors.put(self._scope(caches, kind), list(computed), list(computed.values()))
