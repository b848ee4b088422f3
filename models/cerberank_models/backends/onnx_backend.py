"""The backend on ONNX Runtime, for graphs in fp32, fp16 and int8, on a processor or a GPU. It needs no torch.

States are packed. Each run sorts its pairs by length and divides them into buckets. It pads the pairs of a bucket to
the same length and removes the padding from the result, so that mixed lengths cause little padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.batching import BucketRule, buckets_of
from cerberank_models.backends.device_memory import DeviceMemory, nvml_memory
from cerberank_models.backends.onnx_session import open_stages, place_of
from cerberank_models.backends.processors import compute_threads
from cerberank_models.backends.stage_contract import BackendCounts, StageOutput, consecutive, logit_columns, scored
from cerberank_models.backends.thread_pool import ThreadPool
from cerberank_models.config import RankerConfig
from cerberank_models.encoding import EncodedPairs, concat_pairs, offsets_of, packed_rows

Floats = NDArray[np.floating]
"""Hidden states: float16 between the graphs of half precision, and float32 between all others."""


@dataclass(frozen=True, slots=True)
class OnnxState:
    """Packed hidden states `[T, D]` of some pairs, or their token ids before stage 0."""

    offsets: NDArray[np.int64]
    pairs: EncodedPairs | None
    hidden: Floats | None


class OnnxBackend:
    """Runs one ONNX graph per stage."""

    def __init__(
        self,
        graphs: Sequence[Path],
        config: RankerConfig,
        *,
        precision: str = "fp32",
        threads: int | None = None,
        device: str = "cpu",
        buckets: BucketRule | None = None,
    ) -> None:
        """Open the graphs. `threads` None uses all processors that this process may use.

        On a GPU the graphs run one after another, and hidden states are copied to main memory between two stages.
        No GPU has run this yet. Raises ValueError if the number of graphs differs from the number of stages, and
        DeviceError if the device's provider is not installed.
        """
        self._config = config
        self._buckets = buckets or BucketRule()
        # Batches run in parallel, each on one thread, so that threads synchronise once per run instead of per operator.
        self._threads = compute_threads(threads) if place_of(device)[0] == "cpu" else 1
        self._pool = ThreadPool(self._threads)
        self._sessions = open_stages(graphs, config, threads=1, device=device)
        self._hidden_type = np.float16 if precision == "fp16" else np.float32
        self._device = device
        self.precision = precision
        self.counts = BackendCounts()

    @property
    def config(self) -> RankerConfig:
        """The ranker's shape."""
        return self._config

    @property
    def device_memory(self) -> DeviceMemory | None:
        """The present memory of the GPU; None on a processor."""
        return nvml_memory(self._device)

    def start(self, pairs: EncodedPairs) -> OnnxState:
        """Keep the token ids; they are embedded when stage 0 runs."""
        return OnnxState(pairs.offsets, pairs, None)

    def run(self, state: OnnxState, stage: int) -> StageOutput[OnnxState]:
        """Run one stage's graph on every bucket."""
        last = stage == len(self._config.stages) - 1
        lengths = np.diff(state.offsets)
        logits = np.empty((len(lengths), logit_columns(self._config, stage)), dtype=np.float32)
        after = None
        if not last:
            after = np.empty((int(state.offsets[-1]), self._config.body.hidden_size), dtype=self._hidden_type)

        def run_bucket(rows: NDArray[np.int64]) -> None:
            index, _ = packed_rows(state.offsets, rows)
            mask = token_mask(lengths[rows], int(lengths[rows].max()))
            outputs = self._sessions[stage].run(None, _feeds(state, index, mask))
            logits[rows] = outputs[0]
            if after is not None:
                after[index] = outputs[1][mask]

        buckets = list(buckets_of(lengths, self._buckets, self._threads))
        padded = sum(int(lengths[rows].max()) * len(rows) for rows in buckets)
        self.counts += BackendCounts(padding_tokens=padded - int(lengths.sum()))
        self._pool.run(partial(run_bucket, rows) for rows in buckets)
        follow = None if after is None else OnnxState(state.offsets, None, after)
        return scored(self._config, stage, logits, follow)

    def select(self, state: OnnxState, rows: NDArray[np.integer]) -> OnnxState:
        """Gather the tokens of `rows`."""
        if state.pairs is not None:
            return self.start(state.pairs.select(rows))
        assert state.hidden is not None, "a state has token ids until it has hidden states"
        if (place := consecutive(rows)) is not None:
            offsets = state.offsets[place.start : place.stop + 1]
            return OnnxState(offsets - offsets[0], None, state.hidden[offsets[0] : offsets[-1]].copy())
        index, offsets = packed_rows(state.offsets, rows)
        return OnnxState(offsets, None, state.hidden[index])

    def concat(self, states: Sequence[OnnxState]) -> OnnxState:
        """Concatenate token ids or hidden states."""
        if len(states) == 1:
            return states[0]
        waiting = [state.pairs for state in states if state.pairs is not None]
        if len(waiting) == len(states):
            return self.start(concat_pairs(waiting))
        lengths = np.concatenate([np.diff(state.offsets) for state in states])
        hidden = np.concatenate([state.hidden for state in states if state.hidden is not None])
        return OnnxState(offsets_of(lengths), None, hidden)

    def state_bytes(self, state: OnnxState) -> int:
        """The bytes of the hidden states, which are in main memory even if the device is a GPU."""
        return 0 if state.hidden is None else state.hidden.nbytes

    def free_memory(self) -> None:
        """Do nothing, because ONNX Runtime returns no memory while a session is open."""

    def prepare(self, step_tokens: int) -> None:
        """Do nothing, because a session runs all sizes in the same way."""


def _feeds(state: OnnxState, index: NDArray[np.int64], mask: NDArray[np.bool_]) -> dict[str, NDArray[np.generic]]:
    """The padded inputs of one bucket. `index` holds the places of its tokens in the state, row after row."""
    if state.pairs is not None:
        return padded_ids(state.pairs, index, mask)
    assert state.hidden is not None, "a state has token ids until it has hidden states"
    hidden = np.zeros((*mask.shape, state.hidden.shape[1]), dtype=state.hidden.dtype)
    hidden[mask] = state.hidden[index]
    return {"hidden": hidden, "mask": mask}


def token_mask(lengths: NDArray[np.int64], longest: int) -> NDArray[np.bool_]:
    """True on the tokens of pairs with these lengths, which are padded to `longest`: shape [n, longest]."""
    return np.asarray(np.arange(longest)[None, :] < lengths[:, None])


def padded_ids(
    pairs: EncodedPairs, index: NDArray[np.int64], mask: NDArray[np.bool_]
) -> dict[str, NDArray[np.generic]]:
    """A graph's inputs: the tokens `index` of `pairs`, row after row, where `mask[N, S]` is True, and 0 elsewhere."""
    token_ids = np.zeros(mask.shape, dtype=np.int64)
    type_ids = np.zeros(mask.shape, dtype=np.int64)
    token_ids[mask] = pairs.token_ids[index]
    type_ids[mask] = pairs.type_ids[index]
    return {"token_ids": token_ids, "type_ids": type_ids, "mask": mask}
