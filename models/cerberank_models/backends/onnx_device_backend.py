"""The backend on ONNX Runtime that keeps hidden states on the device, for fp16 graphs with bound inputs and outputs.

A state records, for each pair, the batch of an earlier run that holds the pair's hidden states, and the pair's row in
that batch. `select` and `concat` change only these numbers, because the graph of the next stage gathers the rows. Only
token ids, masks, row numbers and logits are copied between host and device. A batch is freed after its last surviving
pair has run the next stage, so a state may keep other pairs' tokens in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from cerberank_models.backends.batching import BucketRule, buckets_of
from cerberank_models.backends.device_memory import DeviceMemory, nvml_memory
from cerberank_models.backends.onnx_backend import padded_ids, token_mask
from cerberank_models.backends.onnx_session import open_stages, place_of
from cerberank_models.backends.stage_contract import BackendCounts, StageOutput, logit_columns, scored
from cerberank_models.config import RankerConfig
from cerberank_models.encoding import EncodedPairs, concat_pairs, packed_rows

HALF = "tensor(float16)"
"""ONNX Runtime's name for the type of half precision. Hidden states have this type or float32."""
GPU_BUCKETS = BucketRule(tokens=16_384, overhead=512)
"""Batches larger than those for processors, which would leave a GPU partly idle. This is an estimate: it was not
measured on a GPU yet."""


@dataclass(frozen=True, slots=True)
class Places:
    """The places of the hidden states of n pairs."""

    held: tuple[onnxruntime.OrtValue, ...]
    """The padded batches `[P, S, D]` on the device."""
    batch: NDArray[np.int64]
    """Shape [n]: the index in `held` of each pair's batch."""
    row: NDArray[np.int64]
    """Shape [n]: the row of each pair in its batch."""


@dataclass(frozen=True, slots=True)
class DeviceState:
    """Some pairs with their lengths, and their token ids before stage 0 or their places after it."""

    lengths: NDArray[np.int64]
    pairs: EncodedPairs | None
    places: Places | None


@dataclass(frozen=True, slots=True)
class _Batch:
    rows: NDArray[np.int64]
    """The batch's rows in the state."""
    mask: NDArray[np.bool_]
    inputs: dict[str, NDArray[np.generic]]
    hidden: onnxruntime.OrtValue | None


class OnnxDeviceBackend:
    """Runs one graph per stage; the graphs are made by `export_stages` with `gather`."""

    def __init__(
        self,
        graphs: Sequence[Path],
        config: RankerConfig,
        *,
        precision: str = "fp16",
        threads: int | None = None,
        device: str = "cpu",
        buckets: BucketRule = GPU_BUCKETS,
    ) -> None:
        """Open the graphs on `device` (`cuda`, `cuda:1`; `cpu` is for tests of results).

        Raises ValueError if the number of graphs differs from the number of stages, and DeviceError if the device's
        provider is not installed.
        """
        self._config = config
        self._buckets = buckets
        self._place = place_of(device)
        self._sessions = open_stages(graphs, config, threads=threads, device=device)
        self.precision = precision
        """The precision of the graphs."""
        self._device = device
        self.counts = BackendCounts()
        """The counts so far, for the metrics."""

    @property
    def config(self) -> RankerConfig:
        """The ranker's shape."""
        return self._config

    @property
    def device_memory(self) -> DeviceMemory | None:
        """The present memory of the GPU; None on a processor."""
        return nvml_memory(self._device)

    def start(self, pairs: EncodedPairs) -> DeviceState:
        """Keep the token ids; they are embedded when stage 0 runs."""
        return DeviceState(pairs.lengths, pairs, None)

    def run(self, state: DeviceState, stage: int) -> StageOutput[DeviceState]:
        """Run one stage's graph on every batch of the state."""
        last = stage == len(self._config.stages) - 1
        logits = np.empty((len(state.lengths), logit_columns(self._config, stage)), dtype=np.float32)
        held: list[onnxruntime.OrtValue] = []
        batch, row = (np.zeros(len(state.lengths), dtype=np.int64) for _ in range(2))
        for part in self._batches(state):
            self.counts += BackendCounts(padding_tokens=part.mask.size - int(part.mask.sum()))
            outputs = self._bound_run(stage, part, last=last)
            logits[part.rows] = outputs[0].numpy()
            batch[part.rows], row[part.rows] = len(held), np.arange(len(part.rows))
            if not last:
                held.append(outputs[-1])
        after = None if last else DeviceState(state.lengths, None, Places(tuple(held), batch, row))
        return scored(self._config, stage, logits, after)

    def select(self, state: DeviceState, rows: NDArray[np.integer]) -> DeviceState:
        """Select pairs without copying on the device; batches without a remaining pair are freed."""
        if state.pairs is not None:
            return self.start(state.pairs.select(rows))
        assert state.places is not None, "a state has token ids until it has hidden states"
        used, batch = np.unique(state.places.batch[rows], return_inverse=True)
        held = tuple(state.places.held[index] for index in used)
        return DeviceState(state.lengths[rows], None, Places(held, batch, state.places.row[rows]))

    def concat(self, states: Sequence[DeviceState]) -> DeviceState:
        """Join states without copying on the device; pairs from the same batch are in one batch again."""
        if len(states) == 1:
            return states[0]
        waiting = [state.pairs for state in states if state.pairs is not None]
        if len(waiting) == len(states):
            return self.start(concat_pairs(waiting))
        places = [state.places for state in states if state.places is not None]
        held = {id(value): value for each in places for value in each.held}
        number = {key: index for index, key in enumerate(held)}
        batch = [np.asarray([number[id(value)] for value in each.held])[each.batch] for each in places]
        lengths = np.concatenate([state.lengths for state in states])
        joined = Places(tuple(held.values()), np.concatenate(batch), np.concatenate([each.row for each in places]))
        return DeviceState(lengths, None, joined)

    def state_bytes(self, state: DeviceState) -> int:
        """The bytes of every padded batch that holds one or more of the pairs; batches are freed as a whole."""
        held = () if state.places is None else state.places.held
        return sum(math.prod(batch.shape()) * (2 if batch.data_type() == HALF else 4) for batch in held)

    def free_memory(self) -> None:
        """Do nothing, because ONNX Runtime's arena shrinks only at the end of a run that requests it."""

    def prepare(self, step_tokens: int) -> None:
        """Do nothing, because a session runs all sizes in the same way."""

    def _batches(self, state: DeviceState) -> Iterator[_Batch]:
        if state.pairs is not None:
            yield from self._token_batches(state.pairs)
            return
        assert state.places is not None, "a state has token ids until it has hidden states"
        for index, hidden in enumerate(state.places.held):
            rows = np.flatnonzero(state.places.batch == index)
            mask = token_mask(state.lengths[rows], hidden.shape()[1])
            yield _Batch(rows, mask, {"rows": state.places.row[rows], "mask": mask}, hidden)

    def _token_batches(self, pairs: EncodedPairs) -> Iterator[_Batch]:
        for rows in buckets_of(pairs.lengths, self._buckets):
            mask = token_mask(pairs.lengths[rows], int(pairs.lengths[rows].max()))
            index, _ = packed_rows(pairs.offsets, rows)
            yield _Batch(rows, mask, padded_ids(pairs, index, mask), None)

    def _bound_run(self, stage: int, batch: _Batch, *, last: bool) -> list[onnxruntime.OrtValue]:
        session = self._sessions[stage]
        binding = session.io_binding()
        for name, array in batch.inputs.items():
            binding.bind_cpu_input(name, array)
        if batch.hidden is not None:
            binding.bind_ortvalue_input("hidden", batch.hidden)
        binding.bind_output("logits", "cpu")
        if not last:
            binding.bind_output("hidden_out", *self._place)
        session.run_with_iobinding(binding)
        outputs: list[onnxruntime.OrtValue] = binding.get_outputs()
        return outputs
