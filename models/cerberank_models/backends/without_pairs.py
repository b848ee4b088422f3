"""The backend of a checkpoint whose first stage ranks alone: it has no stage of pairs to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.contract import BackendCounts
from cerberank_models.config import RankerConfig
from cerberank_models.encoding import EncodedPairs, concat_pairs


class WithoutPairs:
    """Fulfils `Backend` for a `RankerConfig` without stages; its states are token ids."""

    def __init__(self, config: RankerConfig, precision: str) -> None:
        """`precision` is that of the first stage beside it."""
        self.config, self.precision = config, precision
        self.counts = BackendCounts()
        self.device_memory = None

    def start(self, pairs: EncodedPairs) -> EncodedPairs:
        """The token ids."""
        return pairs

    def run(self, state: EncodedPairs, stage: int) -> NoReturn:
        """Raises ValueError: there is nothing to run."""
        raise ValueError(f"{self.config.name} has no stage {stage} of pairs: its first stage ranks alone")

    def select(self, state: EncodedPairs, rows: NDArray[np.integer]) -> EncodedPairs:
        """The token ids of `rows`."""
        return state.select(rows)

    def concat(self, states: Sequence[EncodedPairs]) -> EncodedPairs:
        """The token ids of all."""
        return concat_pairs(states)

    def state_bytes(self, state: EncodedPairs) -> int:
        """0: there are no hidden states."""
        return 0

    def free_memory(self) -> None:
        """Does nothing: it holds no memory."""

    def prepare(self, step_tokens: int) -> None:
        """Does nothing."""
