"""The stage contract on PyTorch, CPU or GPU, packed: padding is never computed by a linear layer.

`torch_stages.py` computes a stage, `cuda_graphs.py` captures stages as CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from cerberank_models.backends.batching import BucketRule, buckets_of
from cerberank_models.backends.contract import StageOutput, combine, probability
from cerberank_models.backends.cuda_graphs import Capture, CapturedStages, graph_sizes
from cerberank_models.backends.torch_stages import PRECISIONS, StageInput, TorchStages, token_table
from cerberank_models.checkpoint.folder import Checkpoint, CheckpointError
from cerberank_models.config import RankerConfig
from cerberank_models.encoding import EncodedPairs, concat_pairs, packed_rows
from cerberank_models.network.ranker import Ranker
from cerberank_models.network.varlen import VarlenAttention

CPU_BLOCKS = BucketRule(tokens=1024, overhead=128)
"""On a processor a run is cut into blocks whose hidden states fit into the cache; only attention computes padding."""


@dataclass(frozen=True, slots=True)
class TorchState:
    """Hidden states of some pairs, packed; before stage 0 only their token ids."""

    offsets: NDArray[np.int64]
    pairs: EncodedPairs | None
    hidden: Tensor | None


class TorchBackend:
    """Runs a `Ranker` in evaluation mode; results do not depend on the other pairs in a batch."""

    def __init__(
        self,
        ranker: Ranker,
        *,
        device: str = "cpu",
        precision: str = "fp32",
        graph_tokens: int = 0,
        kernel: VarlenAttention | None = None,
        capture: Capture | None = None,
    ) -> None:
        """Take over `ranker`: it is moved to `device` and cast to `precision` (fp32, bf16 or fp16).

        With `graph_tokens` every stage is captured for steps of up to so many tokens before this returns, as CUDA
        graphs or by `capture`. `kernel` replaces the device's variable-length attention.
        Raises ValueError for an unknown precision, or where stages cannot be captured.
        """
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")
        self._stages = TorchStages(ranker, device=torch.device(device), precision=PRECISIONS[precision], kernel=kernel)
        self._captured: CapturedStages | None = None
        if graph_tokens:
            with torch.inference_mode():
                self._captured = CapturedStages(self._stages, graph_sizes(graph_tokens), capture)
        self.padding_tokens = 0
        """Padding tokens computed so far to fill captured graphs, for the metrics."""

    @classmethod
    def from_checkpoint(
        cls, checkpoint: Checkpoint, *, device: str = "cpu", precision: str = "fp32", graph_tokens: int = 0
    ) -> TorchBackend:
        """Load `model.safetensors` strictly; raises CheckpointError naming missing or unexpected keys."""
        return cls(load_ranker(checkpoint), device=device, precision=precision, graph_tokens=graph_tokens)

    @property
    def config(self) -> RankerConfig:
        """The ranker's shape."""
        return self._stages.config

    def start(self, pairs: EncodedPairs) -> TorchState:
        """Keep the token ids; they are embedded when stage 0 runs."""
        return TorchState(pairs.offsets, pairs, None)

    @torch.inference_mode()
    def run(self, state: TorchState, stage: int) -> StageOutput[TorchState]:
        """Run the body layers of `stage` and its exit or heads."""
        in_blocks = self._stages.device.type == "cpu" and self._stages.kernel is None
        hidden, logits = self._compute_in_blocks(state, stage) if in_blocks else self._compute(state, stage)
        values = logits.cpu().numpy()
        if self.config.stages[stage].kind == "exit":
            last = stage == len(self.config.stages) - 1
            after = None if last else TorchState(state.offsets, None, hidden)
            return StageOutput(state=after, scores=probability(values[:, 0]), head_scores=None)
        scores = combine(values, self.config.architecture.combine)
        return StageOutput(state=None, scores=scores, head_scores=probability(values))

    def select(self, state: TorchState, rows: NDArray[np.integer]) -> TorchState:
        """Gather the tokens of `rows`."""
        index, offsets = packed_rows(state.offsets, rows)
        if state.hidden is None:
            assert state.pairs is not None, "a state has token ids until it has hidden states"
            return TorchState(offsets, state.pairs.select(rows), None)
        return TorchState(offsets, None, state.hidden[self._stages.upload(index)])

    def concat(self, states: Sequence[TorchState]) -> TorchState:
        """Join token ids or hidden states."""
        if len(states) == 1:
            return states[0]
        waiting = [state.pairs for state in states if state.pairs is not None]
        if len(waiting) == len(states):
            return self.start(concat_pairs(waiting))
        hidden = torch.cat([state.hidden for state in states if state.hidden is not None])
        lengths = np.concatenate([np.diff(state.offsets) for state in states])
        return TorchState(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]), None, hidden)

    def _compute_in_blocks(self, state: TorchState, stage: int) -> tuple[Tensor, Tensor]:
        blocks = list(buckets_of(np.diff(state.offsets), CPU_BLOCKS))
        if len(blocks) < 2:
            return self._compute(state, stage)
        parts = [self._compute(self.select(state, rows), stage) for rows in blocks]
        hidden, logits = (torch.cat(values) for values in zip(*parts, strict=True))
        rows = np.concatenate(blocks)
        tokens, _ = packed_rows(state.offsets, rows)
        return hidden[torch.from_numpy(np.argsort(tokens))], logits[torch.from_numpy(np.argsort(rows))]

    def _compute(self, state: TorchState, stage: int) -> tuple[Tensor, Tensor]:
        tokens = None if state.pairs is None else self._stages.upload(token_table(state.pairs))
        inputs = StageInput(self._stages.upload(state.offsets.astype(np.int32)), tokens, state.hidden)
        if self._captured is None:
            return self._stages(stage, inputs)
        count = int(state.offsets[-1])
        size = self._captured.size_for(count, len(state.offsets) - 1)
        if size is None:
            return self._stages(stage, inputs)
        self.padding_tokens += size.tokens - count
        return self._captured.run(stage, size, inputs)


def load_ranker(checkpoint: Checkpoint) -> Ranker:
    """The network of a checkpoint with its weights, in fp32 on the CPU."""
    if checkpoint.weights is None:
        raise CheckpointError(f"{checkpoint.path} has no model.safetensors; only its ONNX form can be run")
    ranker = Ranker(checkpoint.config)
    state = load_file(checkpoint.weights)
    expected = set(ranker.state_dict())
    if missing := sorted(expected - set(state)):
        raise CheckpointError(f"model.safetensors lacks {', '.join(missing)}")
    if surplus := sorted(set(state) - expected):
        raise CheckpointError(f"model.safetensors has unexpected keys {', '.join(surplus)}")
    try:
        ranker.load_state_dict(state, strict=True)
    except RuntimeError as error:
        raise CheckpointError(f"model.safetensors does not fit config.json: {error}") from error
    return ranker
