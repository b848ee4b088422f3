"""A first stage in front of a ranker's stages of pairs, behind the one stage contract.

Stage 0 turns texts into vectors, stage s is the ranker's stage s - 1. Both start from token ids alone, so a state that
has not run yet is the token ids themselves; the first stage that it runs says whether they are texts (stage 0) or pairs
(stage 1). A state of texts ends with stage 0, so that no later state can meet one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.contract import Backend, BackendCounts, StageOutput, State
from cerberank_models.backends.device_memory import DeviceMemory
from cerberank_models.config import RankerConfig
from cerberank_models.encoding import EncodedPairs, concat_pairs
from cerberank_models.first_stage.contract import VectorBackend


class WithFirstStage(Generic[State]):
    """Fulfils `Backend` with `config.scored_stages` stages; its state is `EncodedPairs` until a stage has run."""

    def __init__(self, first: VectorBackend, pairs: Backend[State]) -> None:
        """Own both, which run on the same device."""
        self._first, self._pairs = first, pairs

    @property
    def config(self) -> RankerConfig:
        """The ranker's shape; its stages here are `config.scored_stages`."""
        return self._pairs.config

    @property
    def precision(self) -> str:
        """The precision of the stages of pairs, or of the first stage where it ranks alone."""
        return self._pairs.precision if self.config.reads_pairs else self._first.precision

    @property
    def counts(self) -> BackendCounts:
        """The work of the stages of pairs."""
        return self._pairs.counts

    @property
    def device_memory(self) -> DeviceMemory | None:
        """The memory of the GPU that both use."""
        return self._pairs.device_memory

    def start(self, pairs: EncodedPairs) -> EncodedPairs | State:
        """The token ids of texts, for stage 0, or of pairs, for stage 1."""
        return pairs

    def run(self, state: EncodedPairs | State, stage: int) -> StageOutput[EncodedPairs | State]:
        """Run one stage; stage 0 gives vectors, no state, and scores of 0, or NaN where a vector is not finite.

        Raises ValueError when the state does not wait for this stage.
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
        """The state of `rows` alone, in that order."""
        return state.select(rows) if isinstance(state, EncodedPairs) else self._pairs.select(state, rows)

    def concat(self, states: Sequence[EncodedPairs | State]) -> EncodedPairs | State:
        """One state of all rows, in order. Raises ValueError where only some of them have run."""
        if len(states) == 1:
            return states[0]
        begun = [state for state in states if not isinstance(state, EncodedPairs)]
        if not begun:
            return concat_pairs([state for state in states if isinstance(state, EncodedPairs)])
        if len(begun) < len(states):
            raise ValueError("states that wait for different stages cannot be joined")
        return self._pairs.concat(begun)

    def state_bytes(self, state: EncodedPairs | State) -> int:
        """Bytes of hidden states; 0 while there are only token ids."""
        return 0 if isinstance(state, EncodedPairs) else self._pairs.state_bytes(state)

    def free_memory(self) -> None:
        """Return the unused memory of the device that both use."""
        self._pairs.free_memory()

    def prepare(self, step_tokens: int) -> None:
        """Make the stages that see pairs ready for full steps."""
        self._pairs.prepare(step_tokens)
