"""Computes the exits' input for every pair once, because the pooled hidden states of a frozen body do not change.

Input: unlabelled questions, and a ranker with untrained exits. Output: mapped files in a folder, with a vector for each
pair and exit, and with the model's final scores. A killed run resumes after the last finished question.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.encoding import EncodedPairs, PairEncoder
from cerberank_models.network.exits import Exit
from cerberank_models.network.layout import PackedLayout
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.progress import progress
from cerberank_training.data import Question
from cerberank_training.teachers.scoring.checkpoint import logit

VECTORS, LOGITS = "vectors.npy", "logits.npy"


@dataclass(frozen=True, kw_only=True, slots=True)
class PooledVectors:
    """The vectors and final scores of the pairs of questions, one question after the other."""

    offsets: NDArray[np.int64]
    """`[Q + 1]`: question i owns the pairs `offsets[i]:offsets[i + 1]`."""
    vectors: NDArray[np.float16]
    """`[P, E, D]`: the pooled hidden states of P pairs at E exits."""
    logits: NDArray[np.float32]
    """`[P]`: the model's final scores as logits; NaN if a score is not computed yet."""

    def rows(self, question: int) -> slice:
        """The range of the pairs of one question."""
        return slice(int(self.offsets[question]), int(self.offsets[question + 1]))


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenBody:
    """A copy of a ranker, and the backend that runs it."""

    ranker: RankingNetwork
    backend: TorchBackend

    @classmethod
    def of(cls, ranker: RankingNetwork, *, device: str = "cpu", precision: str = "fp32") -> FrozenBody:
        """Copy `ranker`, because the backend casts and moves it. Raises the errors of `TorchBackend`."""
        copied = copy.deepcopy(ranker)
        return cls(ranker=copied, backend=TorchBackend(copied, device=device, precision=precision))


def compute_vectors(
    folder: Path, body: FrozenBody, encoder: PairEncoder, questions: Sequence[Question]
) -> PooledVectors:
    """The pooled vectors of all pairs of `questions`. Vectors that are in `folder` are not computed again.

    The caller must ensure that `folder` belongs to this body, these questions and this precision. Raises ValueError for
    hidden states that are too large for float16.
    """
    stored = _open(folder, body.ranker, questions)
    numbered = progress(enumerate(questions), total=len(questions), unit="question", desc="vectors")
    for index, question in numbered:
        rows = stored.rows(index)
        if not np.isnan(stored.logits[rows]).any():
            continue
        pairs = encoder.encode(question.text, [row.candidate for row in question.candidates])
        vectors, logits = _run(body.backend, body.ranker, pairs)
        stored.vectors[rows] = vectors
        # Logits are written after the vectors, so that a question with logits always has its vectors.
        stored.logits[rows] = logits
    return stored


def _open(folder: Path, ranker: RankingNetwork, questions: Sequence[Question]) -> PooledVectors:
    offsets = np.cumsum([0, *(len(question.candidates) for question in questions)])
    exits, width = len(ranker.config.stages) - 1, cast(Exit, ranker.exits[0]).output.in_features
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / LOGITS).is_file():
        shape = (int(offsets[-1]), exits, width)
        np.lib.format.open_memmap(folder / VECTORS, mode="w+", dtype=np.float16, shape=shape).flush()
        partial = folder / f".{LOGITS}"
        with partial.open("wb") as file:
            np.save(file, np.full(shape[0], np.nan, dtype=np.float32))
        partial.replace(folder / LOGITS)
    vectors, logits = (np.load(folder / name, mmap_mode="r+", allow_pickle=False) for name in (VECTORS, LOGITS))
    return PooledVectors(offsets=offsets, vectors=vectors, logits=logits)


def _run(
    backend: TorchBackend, ranker: RankingNetwork, pairs: EncodedPairs
) -> tuple[NDArray[np.float16], NDArray[np.float32]]:
    state, pooled = backend.start(pairs), []
    last = len(ranker.config.stages) - 1
    for stage in range(last):
        after = backend.run(state, stage).state
        assert after is not None, "the last stage alone ends without a state"
        assert after.hidden is not None, "hidden states are there after the first stage"
        state, hidden = after, after.hidden
        layout = PackedLayout.of(torch.from_numpy(state.offsets).to(hidden.device))
        with torch.inference_mode():
            vectors = cast(Exit, ranker.exits[stage]).pool(hidden, layout)
        pooled.append(vectors.float().cpu().numpy())
    stacked = np.stack(pooled, axis=1)
    if not np.abs(stacked).max() <= np.finfo(np.float16).max:
        raise ValueError("hidden states are too large for float16: exits cannot be trained on them")
    return stacked.astype(np.float16), logit(backend.run(state, last).scores)
