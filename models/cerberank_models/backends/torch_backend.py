"""The backend on PyTorch, for processors and GPUs. Hidden states are packed, so that linear layers compute no padding.

`torch_stages.py` computes a stage, and `cuda_graphs.py` captures stages as CUDA graphs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

from cerberank_models.backends.batching import BucketRule, buckets_of
from cerberank_models.backends.cuda_graphs import Capture, CapturedStages, graph_sizes
from cerberank_models.backends.cuda_streams import own_stream
from cerberank_models.backends.device_memory import DeviceMemory, torch_memory
from cerberank_models.backends.half_precision import usable_precision
from cerberank_models.backends.shared_prefixes import SharedPrefixes
from cerberank_models.backends.stage_contract import BackendCounts, DeviceError, StageOutput, consecutive, scored
from cerberank_models.backends.torch_stages import StageInput, TorchStages, check_process, dtype_of, token_table
from cerberank_models.checkpoint.folder import Checkpoint, CheckpointError
from cerberank_models.config import RankerConfig
from cerberank_models.encoding import EncodedPairs, concat_pairs, offsets_of, packed_rows
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.network.varlen import VarlenAttention
from cerberank_models.transformer import OpaqueTransformer

CPU_BLOCKS = BucketRule(tokens=1024, overhead=128)
"""On a processor, a run is divided into blocks whose hidden states fit into the cache. Only attention is padded."""

HALF_BLOCKS = BucketRule(tokens=4096, overhead=512)
"""The blocks in bf16, whose products are so fast that what each block costs beside them counts: with an overhead of 128
200 and 1,000 candidates take 1.06 and 1.04 times as long (one core of an Intel Xeon with AMX, MiniLM's shape)."""

DECODER_BLOCKS = BucketRule(tokens=2048, overhead=128)
"""The blocks for a decoder: larger, because its weights do not fit into the cache and are read once per block."""

GRAPH_TOKENS = 16_384
"""Steps of up to this many tokens run as CUDA graphs by default, because other threads may delay the launch of kernels
by milliseconds. `prepare` adds graphs for larger steps."""


@dataclass(frozen=True, slots=True)
class TorchState:
    """Packed hidden states of some pairs, or their token ids before stage 0. A decoder keeps both after it."""

    offsets: NDArray[np.int64]
    pairs: EncodedPairs | None
    hidden: Tensor | None


class TorchBackend:
    """Runs a `RankingNetwork` in evaluation mode.

    The other pairs of a batch change a pair's scores only by rounding, because libraries choose the order of sums by
    the shape of a product (docs/reliability.md has the bounds).
    """

    def __init__(
        self,
        ranker: RankingNetwork,
        *,
        device: str = "cpu",
        precision: str = "fp32",
        graph_tokens: int | None = 0,
        kernel: VarlenAttention | None = None,
        capture: Capture | None = None,
    ) -> None:
        """Move `ranker` itself, not a copy, to `device`, and cast it to `precision` (fp32, bf16 or fp16).

        `graph_tokens`: every stage is captured for steps of up to this many tokens, as CUDA graphs or by `capture`,
        before the constructor returns. None captures for `GRAPH_TOKENS`, and later in `prepare`, if stages can be
        captured. `kernel` replaces the device's variable-length attention.

        Raises ValueError for an unknown precision or if stages cannot be captured, DeviceError if there is no device.
        """
        place, dtype = torch.device(device), dtype_of(precision)
        self._process = os.getpid()
        self.precision = precision
        if place.type == "cuda" and not torch.cuda.is_available():
            raise DeviceError(f"device {device!r} needs an NVIDIA GPU with a driver, and PyTorch made for CUDA")
        # A stream of its own, so that two versions on one GPU do not wait for each other; besides, the default stream
        # cannot be captured.
        self._stream = own_stream(place) if place.type == "cuda" else None
        self._captured: CapturedStages | None = None
        with torch.cuda.stream(self._stream):  # not inference mode: uncast weights may be trained further
            self._stages = TorchStages(ranker, device=place, precision=dtype, kernel=kernel)
        self._graphs_follow_steps = graph_tokens is None and self._stages.kernel is not None
        if graph_tokens or self._graphs_follow_steps:
            graph_tokens = graph_tokens or GRAPH_TOKENS
            with self._on_stream():
                self._captured = CapturedStages(self._stages, graph_sizes(graph_tokens), capture)
        self.counts = BackendCounts()
        """The counts so far, for the metrics. Padding tokens are counted only in captured graphs."""

    @classmethod
    def from_checkpoint(
        cls, checkpoint: Checkpoint, *, device: str = "cpu", precision: str = "fp32", graph_tokens: int | None = None
    ) -> TorchBackend:
        """Load `model.safetensors`. fp16 becomes bf16 if activations exceed float16 (`usable_precision`).

        `graph_tokens` is passed to the constructor. Raises CheckpointError for missing or unexpected keys, and
        ValueError as the constructor does.
        """
        ranker = load_ranker(checkpoint)
        precision = usable_precision(ranker, checkpoint, precision)
        return cls(ranker, device=device, precision=precision, graph_tokens=graph_tokens)

    @property
    def config(self) -> RankerConfig:
        """The ranker's shape."""
        return self._stages.config

    @property
    def graph_tokens(self) -> int:
        """The most tokens of a step that runs as a CUDA graph; 0 without graphs, or if none could be captured."""
        return 0 if self._captured is None else self._captured.tokens

    @property
    def device_memory(self) -> DeviceMemory | None:
        """The present memory of the GPU; None on a processor."""
        return torch_memory(str(self._stages.device))

    def start(self, pairs: EncodedPairs) -> TorchState:
        """Keep the token ids; they are embedded when stage 0 runs. Raises DeviceError in a forked process."""
        check_process(self._process, self._stages.device)
        return TorchState(pairs.offsets, pairs, None)

    def run(self, state: TorchState, stage: int) -> StageOutput[TorchState]:
        """Run the body layers of `stage` and its exit or heads."""
        compute = self._compute
        if self._stages.decodes:
            compute = self._compute_shared
        elif self._stages.device.type == "cpu" and self._stages.kernel is None:
            compute = self._compute_in_blocks
        with self._on_stream():
            hidden, logits = compute(state, stage)
            values = logits.cpu().numpy()
        last = stage == len(self.config.stages) - 1
        pairs = state.pairs if self._stages.decodes else None
        return scored(self.config, stage, values, None if last else TorchState(state.offsets, pairs, hidden))

    def select(self, state: TorchState, rows: NDArray[np.integer]) -> TorchState:
        """Gather the tokens of `rows`."""
        if state.hidden is None:
            assert state.pairs is not None, "a state has token ids until it has hidden states"
            return self.start(state.pairs.select(rows))
        pairs = None if state.pairs is None else state.pairs.select(rows)
        with self._on_stream():
            if (place := consecutive(rows)) is not None:  # a slice needs no upload of an index
                offsets = state.offsets[place.start : place.stop + 1]
                return TorchState(offsets - offsets[0], pairs, state.hidden[offsets[0] : offsets[-1]].clone())
            index, offsets = packed_rows(state.offsets, rows)
            return TorchState(offsets, pairs, state.hidden[self._stages.upload(index)])

    def concat(self, states: Sequence[TorchState]) -> TorchState:
        """Concatenate token ids or hidden states."""
        if len(states) == 1:
            return states[0]
        parts = [state.pairs for state in states if state.pairs is not None]
        pairs = concat_pairs(parts) if len(parts) == len(states) else None
        if pairs is not None and states[0].hidden is None:
            return self.start(pairs)
        with self._on_stream():
            hidden = torch.cat([state.hidden for state in states if state.hidden is not None])
        lengths = np.concatenate([np.diff(state.offsets) for state in states])
        return TorchState(offsets_of(lengths), pairs, hidden)

    def state_bytes(self, state: TorchState) -> int:
        """The bytes of the hidden states. States do not share tensors."""
        return 0 if state.hidden is None else state.hidden.numel() * state.hidden.element_size()

    def free_memory(self) -> None:
        """Return the allocator's unused blocks to the GPU, so that blocks of other sizes can be allocated."""
        if self._stream is not None:
            with self._on_stream():
                torch.cuda.empty_cache()

    def prepare(self, step_tokens: int) -> None:
        """Capture every stage for steps of up to `step_tokens` tokens, if `graph_tokens` was None."""
        if self._captured is None or not self._graphs_follow_steps:
            return
        with self._on_stream():
            self._captured.extend(graph_sizes(step_tokens))

    @contextmanager
    def _on_stream(self) -> Iterator[None]:
        """Use inference mode, and the backend's own device and stream."""
        with torch.inference_mode(), torch.cuda.stream(self._stream):  # a stream of None has no effect
            yield

    def _compute_in_blocks(self, state: TorchState, stage: int) -> tuple[Tensor, Tensor]:
        rule = CPU_BLOCKS if self._stages.precision == torch.float32 else HALF_BLOCKS
        blocks = list(buckets_of(np.diff(state.offsets), rule))
        if len(blocks) < 2:
            return self._compute(state, stage)
        parts = [self._compute(self.select(state, rows), stage) for rows in blocks]
        hidden, logits = (torch.cat(values) for values in zip(*parts, strict=True))
        rows = np.concatenate(blocks)
        tokens, _ = packed_rows(state.offsets, rows)
        return hidden[torch.from_numpy(np.argsort(tokens))], logits[torch.from_numpy(np.argsort(rows))]

    def _compute_shared(self, state: TorchState, stage: int) -> tuple[Tensor, Tensor]:
        """Compute a decoder's stage: each shared prefix once, then the rests of the pairs in blocks."""
        assert state.pairs is not None, "a decoder keeps its token ids"
        shared, upload = SharedPrefixes.of(state.pairs), self._stages.upload
        rows = np.arange(len(shared.group))
        prefixes, known = None, None
        if shared.lengths.any():
            prefixes, known = self._stages.prefixes(stage, self._rows(state, *shared.prefixes()))
        on_processor = self._stages.device.type == "cpu"
        blocks = list(buckets_of(shared.rests, DECODER_BLOCKS)) if on_processor else [rows]
        behind = [
            self._stages.behind(stage, self._rows(state, *shared.behind(block)), known, upload(shared.group[block]))
            for block in blocks
        ]
        logits = torch.cat([values for _, values in behind])[upload(np.argsort(np.concatenate(blocks)))]
        if stage == len(self.config.stages) - 1:  # the hidden states are not read
            return logits[:0], logits
        places = [shared.behind(block)[0] for block in blocks]
        parts = [hidden for hidden, _ in behind]
        if prefixes is not None:  # each pair gets its own copy, so that pairs can be selected
            places.append(shared.copies()[0])
            parts.append(prefixes[upload(packed_rows(shared.prefixes()[1], shared.group)[0])])
        return torch.cat(parts)[upload(np.argsort(np.concatenate(places)))], logits

    def _rows(self, state: TorchState, places: NDArray[np.int64], offsets: NDArray[np.int64]) -> StageInput:
        """The input of a stage for the packed tokens at `places`."""
        upload, hidden = self._stages.upload, state.hidden
        assert state.pairs is not None, "a decoder keeps its token ids"
        return StageInput(
            offsets=upload(offsets),
            longest=int(np.diff(offsets).max()),
            tokens=upload(token_table(state.pairs)[:, places]) if hidden is None else None,
            hidden=None if hidden is None else hidden[upload(places)],
        )

    def _compute(self, state: TorchState, stage: int) -> tuple[Tensor, Tensor]:
        tokens = None if state.pairs is None else self._stages.upload(token_table(state.pairs))
        inputs = StageInput(
            offsets=self._stages.upload(state.offsets.astype(np.int32)),
            longest=int(np.diff(state.offsets).max()),
            tokens=tokens,
            hidden=state.hidden,
        )
        if self._captured is None:
            return self._stages(stage, inputs)
        count = int(state.offsets[-1])
        size = self._captured.size_for(count, len(state.offsets) - 1, inputs.longest)
        if size is None:
            self.counts += BackendCounts(graph_misses=1)
            return self._stages(stage, inputs)
        self.counts += BackendCounts(graph_hits=1, padding_tokens=size.tokens - count)
        return self._captured.run(stage, size, inputs)


def load_ranker(checkpoint: Checkpoint) -> RankingNetwork:
    """The network of a checkpoint with its weights, in fp32 on the CPU. Raises CheckpointError if it has no weights."""
    if isinstance(checkpoint.config.transformer, OpaqueTransformer):
        raise CheckpointError(
            f"{checkpoint.path} is an opaque {checkpoint.config.transformer.model_type} graph without layers: serve it "
            "with the onnx backend (CERBERANK_BACKEND=onnx, CERBERANK_PRECISION=fp32 on a GPU); torch cannot run, "
            "train or cut it"
        )
    if not checkpoint.config.reads_pairs:
        raise CheckpointError(
            f"{checkpoint.path} reads no pairs: its first stage ranks alone, so that it has no network to train, cut "
            "or export; `cerberank import` of its source writes other precisions"
        )
    if checkpoint.weights is None:
        raise CheckpointError(
            f"{checkpoint.path} has no model.safetensors, so that only its ONNX graphs can be run; `cerberank import` "
            "and `cerberank train distil` write it, `cerberank export FOLDER OUT` keeps it, and "
            "`cerberank checkpoint weights FOLDER OUT` reads it back from graphs"
        )
    with torch.device("meta"):
        ranker = RankingNetwork(checkpoint.config)
    fill(ranker, checkpoint.weights)
    return ranker


def fill(network: nn.Module, weights: Path) -> None:
    """Load all weights of a safetensors file into `network` in fp32; the network may be on the meta device.

    The weights are copied, because tensors from `load_file` map the file, which may be replaced while the network is in
    use. Raises CheckpointError that names missing and unexpected weights, and weights of another shape.
    """
    state = load_file(weights)
    expected = set(network.state_dict())
    if missing := sorted(expected - set(state)):
        raise CheckpointError(f"{weights.name} lacks {', '.join(missing)}")
    if surplus := sorted(set(state) - expected):
        raise CheckpointError(f"{weights.name} has unexpected keys {', '.join(surplus)}")
    try:
        copies = {name: value.to(torch.float32, copy=True) for name, value in state.items()}
        network.load_state_dict(copies, strict=True, assign=True)
    except RuntimeError as error:
        raise CheckpointError(f"{weights.name} does not fit config.json: {error}") from error
