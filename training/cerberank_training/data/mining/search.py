"""Searches a corpus for the texts that are most similar to questions, by BM25 or by a bi-encoder's vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import Vector
from cerberank_models.checkpoint.folder import REQUIRED, read_checkpoint
from cerberank_models.encoding import concat_pairs
from cerberank_models.first_stage.bi_encoders import read_bi_encoder
from cerberank_models.first_stage.embedding import embed, encoder_of
from cerberank_models.first_stage.opening import (
    file_to_run,
    first_stage_of,
    open_encoder,
    open_scorer,
    open_vector_backend,
)
from cerberank_models.first_stage.scorer import FirstStageScorer, widened
from cerberank_models.first_stage.torch_encoder import TorchEncoder
from cerberank_models.first_stage.vector_backend import VectorBackend
from cerberank_models.first_stage.vector_store import VectorStore
from cerberank_models.shards import map_here
from cerberank_models.text_config import TextRankerConfig
from cerberank_models.text_encoding import TextEncoder
from cerberank_training.data.bm25 import Bm25Index, best_sharing
from cerberank_training.data.mining.work import texts_digest

Floats = NDArray[np.float32]
BLOCK = 1 << 15
"""The number of texts whose vectors are compared at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hits:
    """The result of a search for one question."""

    numbers: list[int]
    """The indices of the best texts in the corpus, best first; ties are in the order of the corpus."""
    scores: Floats
    known: Floats
    """The scores of the texts at the indices `known` of the call."""


class Search(Protocol):
    """Finds the texts of a corpus that are most similar to questions."""

    def __call__(self, questions: Sequence[str], known: Sequence[Sequence[int]], k: int) -> Iterator[Hits]:
        """The best `k` texts for each question, and the scores of its texts at the indices `known`."""


def bm25_search(corpus: Sequence[str]) -> Search:
    """A search by BM25, which finds texts that share a word with the question.

    Raises ValueError if no text of the corpus has a word.
    """
    index = Bm25Index(corpus)

    def search(questions: Sequence[str], known: Sequence[Sequence[int]], k: int) -> Iterator[Hits]:
        for question, numbers in zip(questions, known, strict=True):
            scores = index.scores(question)
            best = best_sharing(scores, k)
            yield Hits(numbers=best, scores=scores[best], known=scores[list(numbers)])

    return search


def vector_search(
    corpus: Sequence[str],
    source: str,
    store: Path,
    *,
    device: str,
    precision: str,
    candidate_length: int,
    progress: Callable[[int], None] = lambda texts: None,
) -> Search:
    """A search by the bi-encoder `source`.

    `source` is a folder of `train pairwise`, a sentence-transformers model, or a checkpoint whose first stage is used
    with its own `candidate_length`. The vectors of the corpus are in the folder `store`, as `cerberank data embed`
    writes them. An incomplete store is completed, and a store of another encoder or corpus is refused. Scores are
    cosines for a sentence-transformers model, and probabilities otherwise. Raises the errors of `read_bi_encoder`,
    `first_stage_of` and `embed`.
    """
    opened = _opened(source, device=device, precision=precision, candidate_length=candidate_length)
    config, encoder, backend, scorer = opened.config, opened.encoder, opened.backend, opened.scorer
    # The vectors of the corpus are in the store, which belongs to this encoder and these texts.
    embed(
        lambda: iter(corpus),
        store,
        inputs=texts_digest(corpus),
        computed_by=opened.computed_by,
        config=config,
        precision=backend.precision,
        shard_map=map_here(encoder_of(backend, encoder)),
        progress=progress,
    )
    vectors = VectorStore.open(store, config)
    # A sentence-transformers model is compared by cosine, a pairwise ranker by its own last layers.
    cosine = config.token_ranker == "dot"

    def compared(question_vectors: Sequence[Vector], texts: Sequence[str]) -> Floats:
        """The scores `[q, n]` of texts whose vectors are in the store."""
        text_vectors = [vector for vector in vectors.find(texts) if vector is not None]
        if cosine:
            product: Floats = (
                np.stack(question_vectors).astype(np.float32)
                @ widened(np.concatenate(text_vectors)).reshape(len(text_vectors), -1).T
            )
            return product
        return np.stack([scorer(question, text_vectors) for question in question_vectors]).astype(np.float32)

    def search(questions: Sequence[str], known: Sequence[Sequence[int]], k: int) -> Iterator[Hits]:
        encoded = backend.encode(concat_pairs([encoder.questions([question]) for question in questions]))
        # Block after block, only the best k so far are held.
        scores, numbers = np.empty((len(encoded), 0), dtype=np.float32), np.empty((len(encoded), 0), dtype=np.int64)
        for start in range(0, len(corpus), BLOCK):
            block = compared(encoded, corpus[start : start + BLOCK])
            scores = np.concatenate([scores, block], axis=1)
            numbers = np.concatenate([numbers, np.broadcast_to(np.arange(block.shape[1]) + start, block.shape)], axis=1)
            best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            scores = np.take_along_axis(scores, best, axis=1)
            numbers = np.take_along_axis(numbers, best, axis=1)
        for row, wanted in enumerate(known):
            others = compared([encoded[row]], [corpus[number] for number in wanted])[0]
            yield Hits(numbers=numbers[row].tolist(), scores=scores[row], known=others)

    return search


@dataclass(frozen=True, kw_only=True, slots=True)
class _BiEncoder:
    config: TextRankerConfig
    encoder: TextEncoder
    backend: VectorBackend
    scorer: FirstStageScorer
    computed_by: str


def _opened(source: str, *, device: str, precision: str, candidate_length: int) -> _BiEncoder:
    if all((Path(source) / name).is_file() for name in REQUIRED):
        checkpoint = read_checkpoint(Path(source))
        return _BiEncoder(
            config=first_stage_of(checkpoint),
            encoder=open_encoder(checkpoint),
            backend=open_vector_backend(checkpoint, kind="torch", precision=precision, device=device),
            scorer=open_scorer(checkpoint),
            computed_by=checkpoint.manifest.files[file_to_run(checkpoint, kind="torch", precision=precision)],
        )
    bi_encoder = read_bi_encoder(source, candidate_length=candidate_length)
    config = bi_encoder.network.config
    return _BiEncoder(
        config=config,
        encoder=TextEncoder(bi_encoder.tokenizer, config),
        backend=TorchEncoder(bi_encoder.network, device=device, precision=precision),
        scorer=FirstStageScorer(config, bi_encoder.weights),
        computed_by=config.encoder,
    )
