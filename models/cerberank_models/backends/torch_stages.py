"""The stages of a ranker as functions of tensors on one device, which the torch backend runs or captures.

Legend as in `network/layout.py`. Inputs are packed token ids or hidden states; outputs are hidden states and float32
logits.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cerberank_models.backends.stage_contract import DeviceError
from cerberank_models.config import RankerConfig
from cerberank_models.encoding import EncodedPairs
from cerberank_models.network.absorbed import AbsorbedHeads, can_absorb
from cerberank_models.network.heads import Head
from cerberank_models.network.layout import GroupedLayout, Layout, PackedLayout
from cerberank_models.network.precision import in_precision
from cerberank_models.network.prefixes import ContinuedLayout, PrefixLayout
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.network.stacked import StackedHeads, stackable
from cerberank_models.network.varlen import VarlenAttention, VarlenLayout, kernel_for

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def check_process(opened_in: int, device: torch.device) -> None:
    """Raise DeviceError in a process forked from the process `opened_in`, which opened the network.

    A forked process has neither OpenMP's threads, for which PyTorch would wait for ever, nor the connection to a GPU.
    """
    if os.getpid() != opened_in and (device.type != "cpu" or torch.get_num_threads() > 1):
        raise DeviceError(
            "PyTorch cannot compute in a forked process: load the ranker in each process, or start processes by spawn"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class StageInput:
    """Tensors on the device. The input of stage 0 is `tokens`, that of later stages `hidden`."""

    offsets: Tensor
    """`[N + 1]`, int32."""
    longest: int
    """An upper bound of the tokens of a pair."""
    tokens: Tensor | None
    """`[2, T]`, int32: token ids, type ids."""
    hidden: Tensor | None
    """`[T, D]`."""


class TorchStages:
    """A ranker on one device in one precision, computed in the fastest way that the device supports."""

    def __init__(
        self,
        ranker: RankingNetwork,
        *,
        device: torch.device,
        precision: torch.dtype,
        kernel: VarlenAttention | None = None,
    ) -> None:
        """Move `ranker` to `device` and cast it; `kernel` None means the device's own kernel, if there is one."""
        sum_in_fp32(precision)
        self.config = ranker.config
        self.device = device
        self.precision = precision
        self._ranker = in_precision(ranker, precision).to(device=device).eval()
        self.kernel = kernel or kernel_of(ranker.config, device, precision)
        self.decodes = ranker.config.body.decoder is not None
        """True for a decoder, which is run by `prefixes` and `behind` instead of `__call__`."""
        if self.kernel is not None:
            self._ranker.encoder.merge_projections()
        self._heads = self._heads_form()

    def __call__(self, stage: int, inputs: StageInput) -> tuple[Tensor, Tensor]:
        """The hidden states `[T, D]` after the stage's body layers, and its logits `[N, c]`. Never waits for a GPU."""
        lies = inputs.tokens if inputs.hidden is None else inputs.hidden.T
        assert lies is not None, "there are token ids until there are hidden states"
        layout = self._layout(inputs, lies.shape[1])
        return self._ranker.run_stage(self._entered(inputs, layout), layout, stage, heads=self._heads)

    def prefixes(self, stage: int, inputs: StageInput) -> tuple[Tensor, PrefixLayout]:
        """The hidden states `[T, D]` of a decoder's prefixes after a stage, and their layout, for `behind`."""
        layout = PrefixLayout.of(inputs.offsets)
        plan = self.config.stages[stage]
        return self._ranker.encoder.run(self._entered(inputs, layout), layout, plan.start, plan.stop), layout

    def behind(
        self, stage: int, inputs: StageInput, prefixes: PrefixLayout | None, group: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Like `__call__`, for the tokens after the `prefixes` of a decoder's pairs; `group[N]` assigns prefixes."""
        offsets = inputs.offsets
        layout = PackedLayout.of(offsets) if prefixes is None else ContinuedLayout.after(prefixes, offsets, group)
        return self._ranker.run_stage(self._entered(inputs, layout), layout, stage, heads=self._heads)

    def _entered(self, inputs: StageInput, layout: Layout) -> Tensor:
        """The hidden states that are the input of a stage's first layer."""
        if inputs.hidden is not None:
            return inputs.hidden
        assert inputs.tokens is not None, "there are token ids until there are hidden states"
        token_ids, type_ids = inputs.tokens
        return self._ranker.encoder.embed(token_ids, type_ids, layout)

    def _heads_form(self) -> nn.Module:
        heads = self._ranker.heads
        if self.kernel is None:
            return AbsorbedHeads(heads) if can_absorb(self._ranker) else heads
        # The kernel does not support attention heads as wide as absorbed queries. Stacked heads need fewer launches.
        stacked = self.config.architecture.head_layers and len(heads) > 1 and all(map(stackable, heads))
        return StackedHeads([head for head in heads if isinstance(head, Head)]) if stacked else heads

    def upload(self, array: NDArray[np.generic]) -> Tensor:
        """The array on the ranker's device."""
        return uploaded(array, self.device)

    def _layout(self, inputs: StageInput, tokens: int) -> Layout:
        if self.kernel is None:
            return (GroupedLayout if self.device.type == "cpu" else PackedLayout).of(inputs.offsets)
        return VarlenLayout(inputs.offsets, inputs.longest, self.kernel, tokens)


def uploaded(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """The array on `device`. It is copied from pinned memory, so that copying overlaps with computing."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def token_table(pairs: EncodedPairs) -> NDArray[np.int32]:
    """The token ids and type ids of all pairs, `[2, T]`."""
    return np.stack([pairs.token_ids, pairs.type_ids]).astype(np.int32)


def dtype_of(precision: str) -> torch.dtype:
    """The torch type of a precision. Raises ValueError with a list of the precisions for an unknown one."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")
    return PRECISIONS[precision]


def sum_in_fp32(precision: torch.dtype) -> None:
    """Make matrix products in float16 on GPUs add partial sums in float32; other precisions change nothing.

    cuBLAS may split a product over its inner dimension, and by default it may add the partial sums in float16. These
    may overflow even if all activations fit (`half_precision`), and the split depends on the number of tokens. PyTorch
    has one switch for the process, so that it affects all networks, including those in training.
    """
    if precision == torch.float16:
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def kernel_of(config: RankerConfig, device: torch.device, precision: torch.dtype) -> VarlenAttention | None:
    """The variable-length attention for a ranker of this shape on the device; None if attention has to be padded."""
    transformer = config.body
    if transformer.decoder is not None:  # tokens after a prefix attend to keys in another tensor
        return None
    windows = transformer.pre_norm is not None and transformer.pre_norm.window + 1 < config.encoding.max_length
    return kernel_for(device, precision, transformer.head_size, windows=windows)
