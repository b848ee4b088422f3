"""The stage contract on PyTorch, CPU or GPU, packed: padding is never computed by a linear layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from cerberank_models.backend import StageOutput, combine, probability
from cerberank_models.checkpoint import Checkpoint, CheckpointError
from cerberank_models.config import RankerConfig
from cerberank_models.encoding import EncodedPairs, concat_pairs, packed_rows
from cerberank_models.layout import PackedLayout
from cerberank_models.ranker import Ranker

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class TorchState:
    """Hidden states of some pairs, packed; before stage 0 only their token ids."""

    offsets: NDArray[np.int64]
    pairs: EncodedPairs | None
    hidden: Tensor | None


class TorchBackend:
    """Runs a `Ranker` in evaluation mode; results do not depend on the other pairs in a batch."""

    def __init__(self, ranker: Ranker, *, device: str = "cpu", precision: str = "fp32") -> None:
        """Take over `ranker`: it is moved to `device` and cast to `precision` (fp32, bf16 or fp16)."""
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")
        self._device = torch.device(device)
        self._ranker = ranker.to(device=self._device, dtype=PRECISIONS[precision]).eval()

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, *, device: str = "cpu", precision: str = "fp32") -> TorchBackend:
        """Load `model.safetensors` strictly; raises CheckpointError naming missing or unexpected keys."""
        return cls(load_ranker(checkpoint), device=device, precision=precision)

    @property
    def config(self) -> RankerConfig:
        """The ranker's shape."""
        return self._ranker.config

    def start(self, pairs: EncodedPairs) -> TorchState:
        """Keep the token ids; they are embedded when stage 0 runs."""
        return TorchState(pairs.offsets, pairs, None)

    @torch.inference_mode()
    def run(self, state: TorchState, stage: int) -> StageOutput[TorchState]:
        """Run the body layers of `stage` and its exit or heads."""
        layout = PackedLayout.of(torch.from_numpy(state.offsets).to(self._device))
        if state.hidden is None:
            assert state.pairs is not None, "a state has token ids until it has hidden states"
            token_ids = torch.from_numpy(state.pairs.token_ids).to(self._device)
            type_ids = torch.from_numpy(state.pairs.type_ids).to(self._device)
            hidden = self._ranker.embeddings(token_ids, type_ids, layout.positions)
        else:
            hidden = state.hidden
        hidden, logits = self._ranker.run_stage(hidden, layout, stage)
        values = logits.float().cpu().numpy()
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
        return TorchState(offsets, None, state.hidden[torch.from_numpy(index).to(self._device)])

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
