"""The stage contract on PyTorch, CPU or GPU, packed: padding is never computed by a linear layer.

`torch_stages.py` computes a stage, `cuda_graphs.py` captures stages as CUDA graphs.
"""

from __future__ import annotations

import logging
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
from cerberank_models.backends.contract import BackendCounts, DeviceError, StageOutput, consecutive, scored
from cerberank_models.backends.cuda_graphs import Capture, CapturedStages, graph_sizes
from cerberank_models.backends.cuda_streams import own_stream
from cerberank_models.backends.device_memory import DeviceMemory, torch_memory
from cerberank_models.backends.half_precision import usable_precision
from cerberank_models.backends.shared_prefixes import SharedPrefixes
from cerberank_models.backends.torch_stages import StageInput, TorchStages, dtype_of, token_table
from cerberank_models.checkpoint.folder import Checkpoint, CheckpointError
from cerberank_models.config import RankerConfig
from cerberank_models.encoding import EncodedPairs, concat_pairs, packed_rows
from cerberank_models.network.bodies.contract import Fuse
from cerberank_models.network.ranker import Ranker
from cerberank_models.network.varlen import VarlenAttention
from cerberank_models.transformer import OpaqueTransformer

logger = logging.getLogger(__name__)

CPU_BLOCKS = BucketRule(tokens=1024, overhead=128)
"""On a processor a run is cut into blocks whose hidden states fit into the cache; only attention computes padding."""

DECODER_BLOCKS = BucketRule(tokens=2048, overhead=128)
"""The same for a decoder, whose weights do not fit into a cache: a larger block reads them less often."""

GRAPH_TOKENS = 16_384
"""Steps of up to so many tokens run as CUDA graphs at least; of more where full steps have more (`prepare`), because
other threads may delay the launch of their kernels by milliseconds."""


@dataclass(frozen=True, slots=True)
class TorchState:
    """Hidden states of some pairs, packed; before stage 0 only their token ids, which a decoder keeps."""

    offsets: NDArray[np.int64]
    pairs: EncodedPairs | None
    hidden: Tensor | None


class TorchBackend:
    """Runs a `Ranker` in evaluation mode.

    A pair's scores depend on the other pairs of its batch by rounding alone: libraries choose the order of sums by the
    shape of a product (docs/reliability.md has the bounds).
    """

    def __init__(
        self,
        ranker: Ranker,
        *,
        device: str = "cpu",
        precision: str = "fp32",
        graph_tokens: int | None = 0,
        kernel: VarlenAttention | None = None,
        capture: Capture | None = None,
        fuse: Fuse | None = None,
    ) -> None:
        """Take over `ranker`: it is moved to `device` and cast to `precision` (fp32, bf16 or fp16).

        With `graph_tokens` every stage is captured for steps of up to so many tokens before this returns, as CUDA
        graphs or by `capture`; None takes `GRAPH_TOKENS`, and what `prepare` adds, where stages can be captured.
        `kernel` replaces the device's variable-length attention, and `fuse` compiles functions of the body's layers
        (`Body.fuse`).
        Raises ValueError for an unknown precision, or where stages cannot be captured, DeviceError without the device.
        """
        place, dtype = torch.device(device), dtype_of(precision)
        self.precision = precision
        """The precision that it computes in."""
        if place.type == "cuda" and not torch.cuda.is_available():
            raise DeviceError(f"device {device!r} needs an NVIDIA GPU with a driver, and PyTorch made for CUDA")
        # A stream of its own: two versions on one GPU do not wait for each other, and the default stream cannot be
        # captured.
        self._stream = own_stream(place) if place.type == "cuda" else None
        self._captured: CapturedStages | None = None
        with torch.cuda.stream(self._stream):  # not in inference mode: a caller may go on training what is not cast
            self._stages = TorchStages(ranker, device=place, precision=dtype, kernel=kernel, fuse=fuse)
        self._graphs_follow_steps = graph_tokens is None and self._stages.kernel is not None
        if graph_tokens or self._graphs_follow_steps:
            graph_tokens = graph_tokens or GRAPH_TOKENS
            with self._on_stream():
                self._captured = CapturedStages(self._stages, graph_sizes(graph_tokens), capture)
        self.counts = BackendCounts()
        """The work done so far, for the metrics; only captured graphs are filled with padding."""

    @classmethod
    def from_checkpoint(
        cls, checkpoint: Checkpoint, *, device: str = "cpu", precision: str = "fp32", graph_tokens: int | None = None
    ) -> TorchBackend:
        """Load `model.safetensors` strictly; fp16 becomes bf16 where float16 is too small (`usable_precision`).

        `graph_tokens` is the constructor's.
        Raises CheckpointError naming missing or unexpected keys, ValueError as the constructor does.
        """
        ranker = load_ranker(checkpoint)
        precision = usable_precision(ranker, checkpoint, precision)
        return cls(ranker, device=device, precision=precision, graph_tokens=graph_tokens)

    @property
    def config(self) -> RankerConfig:
        """The ranker's shape."""
        return self._stages.config

    @property
    def device_memory(self) -> DeviceMemory | None:
        """The memory of its GPU now; None on a processor."""
        return torch_memory(str(self._stages.device))

    def start(self, pairs: EncodedPairs) -> TorchState:
        """Keep the token ids; they are embedded when stage 0 runs."""
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
        kept = state.pairs if self._stages.decodes else None
        return scored(self.config, stage, values, None if last else TorchState(state.offsets, kept, hidden))

    def select(self, state: TorchState, rows: NDArray[np.integer]) -> TorchState:
        """Gather the tokens of `rows`."""
        if state.hidden is None:
            assert state.pairs is not None, "a state has token ids until it has hidden states"
            return self.start(state.pairs.select(rows))
        pairs = None if state.pairs is None else state.pairs.select(rows)
        with self._on_stream():
            if (place := consecutive(rows)) is not None:  # copied, without an index that would have to be uploaded
                offsets = state.offsets[place.start : place.stop + 1]
                return TorchState(offsets - offsets[0], pairs, state.hidden[offsets[0] : offsets[-1]].clone())
            index, offsets = packed_rows(state.offsets, rows)
            return TorchState(offsets, pairs, state.hidden[self._stages.upload(index)])

    def concat(self, states: Sequence[TorchState]) -> TorchState:
        """Join token ids or hidden states."""
        if len(states) == 1:
            return states[0]
        kept = [state.pairs for state in states if state.pairs is not None]
        pairs = concat_pairs(kept) if len(kept) == len(states) else None
        if pairs is not None and states[0].hidden is None:
            return self.start(pairs)
        with self._on_stream():
            hidden = torch.cat([state.hidden for state in states if state.hidden is not None])
        lengths = np.concatenate([np.diff(state.offsets) for state in states])
        return TorchState(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]), pairs, hidden)

    def state_bytes(self, state: TorchState) -> int:
        """The hidden states' bytes; no state shares its tensor with another."""
        return 0 if state.hidden is None else state.hidden.numel() * state.hidden.element_size()

    def free_memory(self) -> None:
        """Return the allocator's unused blocks to the GPU, so that smaller ones can be cut from them."""
        if self._stream is not None:
            with self._on_stream():
                torch.cuda.empty_cache()

    def prepare(self, step_tokens: int) -> None:
        """Capture every stage for full steps too, where `graph_tokens` was None."""
        if self._captured is None or not self._graphs_follow_steps:
            return
        try:
            with self._on_stream():
                self._captured.extend(graph_sizes(step_tokens))
        except torch.OutOfMemoryError as error:
            logger.warning("steps of %d tokens run without CUDA graphs, which do not fit: %s", step_tokens, error)

    @contextmanager
    def _on_stream(self) -> Iterator[None]:
        """Inference mode, on the backend's own device and stream."""
        with torch.inference_mode(), torch.cuda.stream(self._stream):  # does nothing for the stream None
            yield

    def _compute_in_blocks(self, state: TorchState, stage: int) -> tuple[Tensor, Tensor]:
        blocks = list(buckets_of(np.diff(state.offsets), CPU_BLOCKS))
        if len(blocks) < 2:
            return self._compute(state, stage)
        parts = [self._compute(self.select(state, rows), stage) for rows in blocks]
        hidden, logits = (torch.cat(values) for values in zip(*parts, strict=True))
        rows = np.concatenate(blocks)
        tokens, _ = packed_rows(state.offsets, rows)
        return hidden[torch.from_numpy(np.argsort(tokens))], logits[torch.from_numpy(np.argsort(rows))]

    def _compute_shared(self, state: TorchState, stage: int) -> tuple[Tensor, Tensor]:
        """A decoder's stage: what pairs begin with once for all of them, then the rest of each in blocks."""
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
        if stage == len(self.config.stages) - 1:  # nobody reads the hidden states
            return logits[:0], logits
        places = [shared.behind(block)[0] for block in blocks]
        parts = [hidden for hidden, _ in behind]
        if prefixes is not None:  # a copy for each pair: a state keeps no other pair's
            places.append(shared.copies()[0])
            parts.append(prefixes[upload(packed_rows(shared.prefixes()[1], shared.group)[0])])
        return torch.cat(parts)[upload(np.argsort(np.concatenate(places)))], logits

    def _rows(self, state: TorchState, places: NDArray[np.int64], offsets: NDArray[np.int64]) -> StageInput:
        """The packed tokens at `places` as a stage's input."""
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
        size = self._captured.size_for(count, len(state.offsets) - 1)
        if size is None:
            self.counts += BackendCounts(graph_misses=1)
            return self._stages(stage, inputs)
        self.counts += BackendCounts(graph_hits=1, padding_tokens=size.tokens - count)
        return self._captured.run(stage, size, inputs)


def load_ranker(checkpoint: Checkpoint) -> Ranker:
    """The network of a checkpoint with its weights, in fp32 on the CPU. Raises CheckpointError without any."""
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
        ranker = Ranker(checkpoint.config)
    fill(ranker, checkpoint.weights)
    return ranker


def fill(network: nn.Module, weights: Path) -> None:
    """Give `network`, which may be on the meta device, all weights of a safetensors file in fp32.

    They are copies: tensors of `load_file` are parts of the file, which may be replaced while the network is used.
    Raises CheckpointError, which names what is missing, unexpected or of another shape.
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
