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

from cerberank_models.backends.device_memory import DeviceMemory
from cerberank_models.config import RankerConfig
from cerberank_models.encoding import EncodedPairs

Scores = NDArray[np.float64]
Vector = NDArray[np.float16]
"""One text's input for the rankers of a first stage: one-dimensional (`TextRankerConfig` tells its parts)."""
State = TypeVar("State")


class DeviceError(RuntimeError):
    """The device, or the library that runs a model on it, is missing or could not start; the message is for users."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageOutput(Generic[State]):
    """The result of one stage for n pairs."""

    state: State | None
    """The state from which the next stage runs; None after the last stage."""
    scores: Scores
    """Shape [n]: P(correct) as this stage estimates it."""
    head_scores: Scores | None
    """Shape [n, k]: each head's P(correct); only after a stage that ends in heads."""
    vectors: Sequence[Vector] | None = None
    """Each text's vector, n of them; only from a first stage, whose `scores` are 0 because no question is known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendCounts:
    """Counts of a backend's work since it was opened, for the metrics; a caller takes the difference of two."""

    padding_tokens: int = 0
    """Padding tokens computed."""
    graph_hits: int = 0
    """Runs of a stage that a captured graph had room for."""
    graph_misses: int = 0
    """Runs that no captured graph had room for; 0 in a backend that has captured none."""

    def __add__(self, more: BackendCounts) -> BackendCounts:
        """The sums."""
        return BackendCounts(
            padding_tokens=self.padding_tokens + more.padding_tokens,
            graph_hits=self.graph_hits + more.graph_hits,
            graph_misses=self.graph_misses + more.graph_misses,
        )


class Backend(Protocol[State]):
    """Runs the stages of one ranker. Not thread-safe: one thread owns it."""

    @property
    def config(self) -> RankerConfig:
        """The ranker's shape; its stages are `config.stages`."""

    @property
    def precision(self) -> str:
        """The number format that it computes in: bf16 where fp16 was asked for and would overflow."""

    @property
    def counts(self) -> BackendCounts:
        """The work done so far; any thread may read it."""

    @property
    def device_memory(self) -> DeviceMemory | None:
        """The memory of the GPU that holds its states, now; None where they lie in main memory."""

    def start(self, pairs: EncodedPairs) -> State:
        """Make the state from which stage 0 runs."""

    def run(self, state: State, stage: int) -> StageOutput[State]:
        """Run one stage over every pair of `state`; stages must be run in order."""

    def select(self, state: State, rows: NDArray[np.integer]) -> State:
        """The state of the pairs `rows` alone, in that order; it does not keep the memory of the others' hidden states.

        `OnnxDeviceBackend` is the exception, which `state_bytes` counts. Consecutive rows are cheaper than others.
        """

    def concat(self, states: Sequence[State]) -> State:
        """One state of all pairs, in order; every state must wait for the same stage."""

    def state_bytes(self, state: State) -> int:
        """Bytes of memory that hidden states take as long as `state` is kept; 0 while there are only token ids.

        Memory that two states share is counted for each.
        """

    def free_memory(self) -> None:
        """Return the device's memory that is kept for later runs and not in use; called after memory ran out."""

    def prepare(self, step_tokens: int) -> None:
        """Make ready for steps of up to so many tokens, once warm-up has chosen them; steps run without it too."""


def consecutive(rows: NDArray[np.integer]) -> slice | None:
    """The rows as a slice, if each follows the one before it; None otherwise, and for no rows.

    >>> consecutive(np.array([3, 4, 5])), consecutive(np.array([3, 5]))
    (slice(3, 6, None), None)
    """
    if len(rows) == 0 or (np.diff(rows) != 1).any():
        return None
    return slice(int(rows[0]), int(rows[-1]) + 1)


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


def logit_columns(config: RankerConfig, stage: int) -> int:
    """The number of logits that a pair gets at a stage: one at an exit, one a head at the end."""
    return 1 if config.stages[stage].kind == "exit" else config.architecture.heads


def scored(config: RankerConfig, stage: int, logits: NDArray[np.floating], after: State | None) -> StageOutput[State]:
    """The output of a stage from its logits `[n, c]`; `after` is the state behind it, None behind the last stage."""
    if config.stages[stage].kind == "exit":
        return StageOutput(state=after, scores=probability(logits[:, 0]), head_scores=None)
    scores = combine(logits, config.architecture.combine)
    return StageOutput(state=None, scores=scores, head_scores=probability(logits))
