"""The backend of a checkpoint whose first stage is the only stage, so that no stage of pairs is run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import BackendCounts
from cerberank_models.config import RankerConfig
from cerberank_models.encoding import EncodedPairs, concat_pairs


class WithoutPairs:
    """Implements `Backend` for a `RankerConfig` without stages of pairs. States are token ids."""

    def __init__(self, config: RankerConfig, precision: str) -> None:
        """Report `precision`, which is that of the first stage."""
        self.config = config
        self.precision = precision
        self.counts = BackendCounts()
        self.device_memory = None

    def start(self, pairs: EncodedPairs) -> EncodedPairs:
        """Return the token ids."""
        return pairs

    def run(self, state: EncodedPairs, stage: int) -> NoReturn:
        """Raise ValueError, because there is no stage to run."""
        raise ValueError(f"{self.config.name} has no stage {stage} of pairs: its first stage ranks alone")

    def select(self, state: EncodedPairs, rows: NDArray[np.integer]) -> EncodedPairs:
        """Return the token ids of `rows`."""
        return state.select(rows)

    def concat(self, states: Sequence[EncodedPairs]) -> EncodedPairs:
        """Return the token ids of all states."""
        return concat_pairs(states)

    def state_bytes(self, state: EncodedPairs) -> int:
        """Return 0, because there are no hidden states."""
        return 0

    def free_memory(self) -> None:
        """Do nothing, because no memory is held."""

    def prepare(self, step_tokens: int) -> None:
        """Do nothing."""
