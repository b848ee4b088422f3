"""The protocol of a backend, which computes the stages of a ranker.

Callers handle opaque states instead of tensors, and backends know pairs instead of questions. Scores are probabilities
in float64, computed from float32 logits, so that confident candidates do not tie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.device_memory import DeviceMemory
from cerberank_models.config import RankerConfig
from cerberank_models.encoding import EncodedPairs

Scores = NDArray[np.float64]
Vector = NDArray[np.float16]
"""The one-dimensional vector of a text, which the rankers of a first stage read (parts: `TextRankerConfig`)."""
State = TypeVar("State")


class DeviceError(RuntimeError):
    """The device, or the library that uses it, is missing or could not start; the message is written for users."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageOutput(Generic[State]):
    """The result of one stage for n pairs."""

    state: State | None
    """The input of the next stage; None after the last stage."""
    scores: Scores
    """Shape [n]: this stage's estimate of P(correct)."""
    head_scores: Scores | None
    """Shape [n, k]: each head's P(correct); None for a stage that does not end in heads."""
    vectors: Sequence[Vector] | None = None
    """The vectors of n texts, only from a first stage. Its `scores` are 0, because it does not know the question."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendCounts:
    """Counts of a backend's work since it was opened. Metrics use the difference between two readings."""

    padding_tokens: int = 0
    """The number of padding tokens that were computed."""
    graph_hits: int = 0
    """The number of runs of a stage that fitted into a captured graph."""
    graph_misses: int = 0
    """The number of runs of a stage that fitted into no captured graph; 0 in a backend without captured graphs."""

    def __add__(self, more: BackendCounts) -> BackendCounts:
        """The sums."""
        return BackendCounts(
            padding_tokens=self.padding_tokens + more.padding_tokens,
            graph_hits=self.graph_hits + more.graph_hits,
            graph_misses=self.graph_misses + more.graph_misses,
        )


class Backend(Protocol[State]):
    """Computes the stages of one ranker. Not thread-safe: only one thread may use it."""

    @property
    def config(self) -> RankerConfig:
        """The ranker's shape; its stages are `config.stages`."""

    @property
    def precision(self) -> str:
        """The precision in which the backend computes: bf16 if fp16 was requested but would overflow."""

    @property
    def counts(self) -> BackendCounts:
        """The counts so far; any thread may read them."""

    @property
    def device_memory(self) -> DeviceMemory | None:
        """The present memory of the GPU that holds the states; None if they are in main memory."""

    def start(self, pairs: EncodedPairs) -> State:
        """Make the state that is the input of stage 0."""

    def run(self, state: State, stage: int) -> StageOutput[State]:
        """Run one stage on all pairs of `state`. Stages must be run in order."""

    def select(self, state: State, rows: NDArray[np.integer]) -> State:
        """The state of the pairs `rows`, in that order. Consecutive rows are cheaper than others.

        The hidden states of other pairs are not kept in memory.
        """

    def concat(self, states: Sequence[State]) -> State:
        """One state with the pairs of all `states`, in order. All of them must be the input of the same stage."""

    def state_bytes(self, state: State) -> int:
        """The bytes of hidden states that `state` keeps in memory; 0 if it has only token ids."""

    def free_memory(self) -> None:
        """Return unused memory that is cached for later runs to the device. Called after memory ran out."""

    def prepare(self, step_tokens: int) -> None:
        """Prepare for steps of up to `step_tokens` tokens, which warm-up has chosen. Calling it is optional."""


def consecutive(rows: NDArray[np.integer]) -> slice | None:
    """The rows as a slice if they are consecutive numbers; None if they are not, or if there are no rows.

    >>> consecutive(np.array([3, 4, 5])), consecutive(np.array([3, 5]))
    (slice(3, 6, None), None)
    """
    if len(rows) == 0 or (np.diff(rows) != 1).any():
        return None
    return slice(int(rows[0]), int(rows[-1]) + 1)


def probability(logits: NDArray[np.floating]) -> Scores:
    """The sigmoid in float64, without overflow. For two classes, pass `z1 - z0`.

    >>> probability(np.array([0.0, 1000.0, -1000.0])).tolist()
    [0.5, 1.0, 0.0]
    """
    return 0.5 * (1.0 + np.tanh(0.5 * logits.astype(np.float64)))


def combine(head_logits: NDArray[np.floating], rule: Literal["probability", "logit"]) -> Scores:
    """The scores [n] from logits [n, k], by the mean of the heads' probabilities (CERBERUS eq. 5) or logits."""
    if rule == "logit":
        return probability(head_logits.astype(np.float64).mean(axis=1))
    return np.asarray(probability(head_logits).mean(axis=1))


def logit_columns(config: RankerConfig, stage: int) -> int:
    """The number of logits of a pair at a stage: one at an exit, and one per head at the last stage."""
    return 1 if config.stages[stage].kind == "exit" else config.architecture.heads


def scored(config: RankerConfig, stage: int, logits: NDArray[np.floating], after: State | None) -> StageOutput[State]:
    """The output of a stage from its logits `[n, c]`. `after` is the input of the next stage, None after the last."""
    if config.stages[stage].kind == "exit":
        return StageOutput(state=after, scores=probability(logits[:, 0]), head_scores=None)
    scores = combine(logits, config.architecture.combine)
    return StageOutput(state=None, scores=scores, head_scores=probability(logits))
