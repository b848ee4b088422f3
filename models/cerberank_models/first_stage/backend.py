"""Combines a first stage and a ranker's stages of pairs in one backend.

Stage 0 computes the vectors of texts, and stage s > 0 is the ranker's stage s - 1. Stages 0 and 1 both start from token
ids: a state before its first run is `EncodedPairs`, which holds texts if stage 0 is run on it, and pairs if stage 1 is.
Stage 0 returns no state, so texts and pairs are never joined in one state after a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.device_memory import DeviceMemory
from cerberank_models.backends.stage_contract import Backend, BackendCounts, StageOutput, State
from cerberank_models.config import RankerConfig
from cerberank_models.encoding import EncodedPairs, concat_pairs
from cerberank_models.first_stage.vector_backend import VectorBackend


class WithFirstStage(Generic[State]):
    """Implements `Backend` with `config.scored_stages` stages. A state is `EncodedPairs` until a stage has run."""

    def __init__(self, first: VectorBackend, pairs: Backend[State]) -> None:
        """Use both backends, which must run on the same device."""
        self._first = first
        self._pairs = pairs

    @property
    def config(self) -> RankerConfig:
        """The ranker's shape; the number of stages here is `config.scored_stages`."""
        return self._pairs.config

    @property
    def precision(self) -> str:
        """The precision of the stages of pairs, or of the first stage if it is the only stage."""
        return self._pairs.precision if self.config.reads_pairs else self._first.precision

    @property
    def counts(self) -> BackendCounts:
        """The counts of the stages of pairs."""
        return self._pairs.counts

    @property
    def device_memory(self) -> DeviceMemory | None:
        """The memory of the GPU that both backends use."""
        return self._pairs.device_memory

    def start(self, pairs: EncodedPairs) -> EncodedPairs | State:
        """Return the token ids: of texts as the input of stage 0, or of pairs as the input of stage 1."""
        return pairs

    def run(self, state: EncodedPairs | State, stage: int) -> StageOutput[EncodedPairs | State]:
        """Run one stage. Stage 0 returns vectors and no state; its scores are 0, or NaN if a vector is not finite.

        Raises ValueError if the state is not the input of this stage.
        """
        if isinstance(state, EncodedPairs) and stage == 0:
            vectors = self._first.encode(state)
            finite = [bool(np.isfinite(vector).all()) for vector in vectors]
            return StageOutput(state=None, scores=np.where(finite, 0.0, np.nan), head_scores=None, vectors=vectors)
        if stage == 0 or isinstance(state, EncodedPairs) != (stage == 1):
            raise ValueError(f"the state does not wait for stage {stage}")
        output = self._pairs.run(self._pairs.start(state) if isinstance(state, EncodedPairs) else state, stage - 1)
        return StageOutput(state=output.state, scores=output.scores, head_scores=output.head_scores)

    def select(self, state: EncodedPairs | State, rows: NDArray[np.integer]) -> EncodedPairs | State:
        """The state of `rows`, in that order."""
        return state.select(rows) if isinstance(state, EncodedPairs) else self._pairs.select(state, rows)

    def concat(self, states: Sequence[EncodedPairs | State]) -> EncodedPairs | State:
        """One state with the rows of all `states`, in order. Raises ValueError if only some states have run a stage."""
        if len(states) == 1:
            return states[0]
        begun = [state for state in states if not isinstance(state, EncodedPairs)]
        if not begun:
            return concat_pairs([state for state in states if isinstance(state, EncodedPairs)])
        if len(begun) < len(states):
            raise ValueError("states that wait for different stages cannot be joined")
        return self._pairs.concat(begun)

    def state_bytes(self, state: EncodedPairs | State) -> int:
        """The bytes of hidden states; 0 if there are only token ids."""
        return 0 if isinstance(state, EncodedPairs) else self._pairs.state_bytes(state)

    def free_memory(self) -> None:
        """Return cached memory to the device that both backends use."""
        self._pairs.free_memory()

    def prepare(self, step_tokens: int) -> None:
        """Prepare the stages of pairs for steps of up to `step_tokens` tokens."""
        self._pairs.prepare(step_tokens)
