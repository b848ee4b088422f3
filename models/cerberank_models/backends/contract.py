"""The stage contract: what a backend, which runs a ranker, promises to its callers.

The caller never sees a tensor, the backend never sees a question. Scores are probabilities in
float64, computed from float32 logits, so that confident candidates do not tie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from cerberank_models.config import RankerConfig
from cerberank_models.encoding import EncodedPairs

Scores = NDArray[np.float64]
State = TypeVar("State")


@dataclass(frozen=True, kw_only=True, slots=True)
class StageOutput(Generic[State]):
    """The result of one stage for n pairs."""

    state: State | None
    """The state from which the next stage runs; None after the last stage."""
    scores: Scores
    """Shape [n]: P(correct) as this stage estimates it."""
    head_scores: Scores | None
    """Shape [n, k]: each head's P(correct); only after a stage that ends in heads."""


class Backend(Protocol[State]):
    """Runs the stages of one ranker. Not thread-safe: one thread owns it."""

    @property
    def config(self) -> RankerConfig:
        """The ranker's shape; its stages are `config.stages`."""

    @property
    def padding_tokens(self) -> int:
        """Padding tokens computed so far, for the metrics; 0 for a backend that never pads."""

    def start(self, pairs: EncodedPairs) -> State:
        """Make the state from which stage 0 runs."""

    def run(self, state: State, stage: int) -> StageOutput[State]:
        """Run one stage over every pair of `state`; stages must be run in order."""

    def select(self, state: State, rows: NDArray[np.integer]) -> State:
        """The state of the pairs `rows` alone, in that order."""

    def concat(self, states: Sequence[State]) -> State:
        """One state of all pairs, in order; every state must wait for the same stage."""


def probability(logits: NDArray[np.floating]) -> Scores:
    """Sigmoid in float64, without overflow. For two classes, pass `z1 - z0`.

    >>> probability(np.array([0.0, 1000.0, -1000.0])).tolist()
    [0.5, 1.0, 0.0]
    """
    return 0.5 * (1.0 + np.tanh(0.5 * logits.astype(np.float64)))


def combine(head_logits: NDArray[np.floating], rule: Literal["probability", "logit"]) -> Scores:
    """Scores [n] from logits [n, k]: the mean of the heads' probabilities (CERBERUS eq. 5), or of logits."""
    if rule == "logit":
        return probability(head_logits.astype(np.float64).mean(axis=1))
    return np.asarray(probability(head_logits).mean(axis=1))
