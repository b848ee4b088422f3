"""The first stage's encoder on PyTorch. Texts are packed, so that linear layers compute no padding."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from cerberank_models.backends.batching import buckets_of
from cerberank_models.backends.cuda_streams import own_stream
from cerberank_models.backends.stage_contract import DeviceError, Vector
from cerberank_models.backends.torch_backend import CPU_BLOCKS
from cerberank_models.backends.torch_stages import check_process, dtype_of, sum_in_fp32, uploaded
from cerberank_models.encoding import EncodedPairs
from cerberank_models.first_stage.vector_backend import split_vectors, token_roles
from cerberank_models.network.layout import Layout, PackedLayout
from cerberank_models.network.precision import in_precision
from cerberank_models.network.text_ranker import TextVectors
from cerberank_models.network.varlen import VarlenAttention, VarlenLayout, kernel_for
from cerberank_models.text_config import TextRankerConfig


class TorchEncoder:
    """Runs a `TextVectors` network in evaluation mode."""

    def __init__(
        self,
        network: TextVectors,
        *,
        device: str = "cpu",
        precision: str = "fp32",
        kernel: VarlenAttention | None = None,
    ) -> None:
        """Move `network` itself, not a copy, to `device`, and cast it to `precision` (fp32, bf16 or fp16).

        `kernel` replaces the device's variable-length attention. Raises ValueError for an unknown precision, and
        DeviceError if there is no such device.
        """
        place, dtype = torch.device(device), dtype_of(precision)
        if place.type == "cuda" and not torch.cuda.is_available():
            raise DeviceError(f"device {device!r} needs an NVIDIA GPU with a driver, and PyTorch made for CUDA")
        self._process = os.getpid()
        self.precision = precision
        self._device = place
        self._stream = own_stream(place) if place.type == "cuda" else None
        sum_in_fp32(dtype)
        transformer = network.config.transformer
        self._kernel = kernel or kernel_for(place, dtype, transformer.hidden_size // transformer.attention_heads)
        with torch.cuda.stream(self._stream):  # the stream that reads the weights later
            self._network = in_precision(network, dtype).to(place).eval()
            if self._kernel is not None:
                self._network.encoder.merge_projections()

    @property
    def config(self) -> TextRankerConfig:
        """The bi-encoder's shape."""
        return self._network.config

    def encode(self, texts: EncodedPairs) -> Sequence[Vector]:
        """The vector of each text. Raises DeviceError in a forked process."""
        check_process(self._process, self._device)
        if not len(texts):
            return []
        if self._device.type != "cpu" or self._kernel is not None:
            return self._compute(texts)
        vectors: dict[int, Vector] = {}
        for rows in buckets_of(texts.lengths, CPU_BLOCKS):
            vectors |= zip(rows.tolist(), self._compute(texts.select(rows)), strict=True)
        return [vectors[row] for row in range(len(texts))]

    def _compute(self, texts: EncodedPairs) -> list[Vector]:
        with torch.inference_mode(), torch.cuda.stream(self._stream):  # a stream of None has no effect
            offsets = uploaded(texts.offsets.astype(np.int32), self._device)
            token_ids, type_ids = uploaded(texts.token_ids, self._device), uploaded(texts.type_ids, self._device)
            roles = token_roles(texts, self.config.encoding.colbert)
            layout: Layout
            if roles.attended is not None:  # the kernel cannot mask tokens within a text
                packed = PackedLayout.of(offsets)
                layout = replace(packed, keys=packed.pad(uploaded(roles.attended, self._device)))
            elif self._kernel is None:
                layout = PackedLayout.of(offsets)
            else:
                layout = VarlenLayout(offsets, int(texts.lengths.max()), self._kernel, texts.tokens)
            fixed, tokens = self._network.read(token_ids, type_ids, layout)
            parts = [part.half().cpu().numpy() for part in (fixed, tokens) if part is not None]
        return split_vectors(parts[0], parts[1] if len(parts) > 1 else None, texts.offsets, roles.compared)
