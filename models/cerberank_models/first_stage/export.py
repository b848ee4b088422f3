"""The encoder of a first stage as an ONNX graph in fp32, fp16 or int8. Needs onnx and onnxruntime."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from cerberank_models.backends.contract import Vector
from cerberank_models.encoding import EncodedPairs
from cerberank_models.export.checkpoint import ParityError
from cerberank_models.export.graphs import FusedAttentionLayout, export_module, token_inputs
from cerberank_models.export.int8 import measure_ranges, quantise
from cerberank_models.first_stage.onnx_encoder import OnnxEncoder
from cerberank_models.network.precision import in_precision
from cerberank_models.network.text_ranker import TextVectors

VECTOR_PARITY = 2.0**-9
"""How far fp32 vectors may lie from PyTorch's, as a share of the largest number: two steps of float16's last digit."""


class _Encoder(nn.Module):
    def __init__(self, network: TextVectors) -> None:
        super().__init__()
        self.network = network

    def forward(self, token_ids: Tensor, type_ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        fixed, tokens = self.network.read(token_ids, type_ids, FusedAttentionLayout(mask, _longest(self.network)))
        parts = [fixed.float()] if self.network.config.fixed_width else []
        return tuple(parts if tokens is None else [*parts, tokens])


def export_encoder(
    precision: str, network: TextVectors, path: Path, *, calibration: Sequence[EncodedPairs], margin: float
) -> OnnxEncoder:
    """Write the graph `path` and open it; int8 measures its ranges on `calibration`, widened by the factor `margin`.

    The graph reads padded token ids, type ids and mask `[N, S]`, and gives `vectors [N, W]` and `tokens [N, S, P]`,
    each where the first stage has such a part.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if precision == "int8":
        form = quantise(network, measure_ranges(network, calibration), margin=margin)
    elif precision == "fp16":
        form = in_precision(copy.deepcopy(network), torch.float16)
    else:
        form = network
    config = network.config
    inputs, shapes = token_inputs(_longest(network))
    outputs = ["vectors"] * bool(config.fixed_width) + ["tokens"] * (config.token_ranker == "colbert")
    export_module(_Encoder(form), path, inputs=inputs, shapes=shapes, outputs=outputs)
    return OnnxEncoder(path, config, precision=precision)


def _longest(network: TextVectors) -> int:
    """Tokens of the longest text, with its two special ones."""
    return 2 + max(network.config.encoding.question_length, network.config.encoding.document_length)


def check_vectors(expected: Sequence[Vector], got: Sequence[Vector]) -> None:
    """Raise ParityError unless the fp32 graph's vectors are PyTorch's within `VECTOR_PARITY`."""
    wanted, given = (np.concatenate(vectors).astype(np.float32) for vectors in (expected, got))
    difference, largest = float(np.abs(wanted - given).max()), max(1.0, float(np.abs(wanted).max()))
    if not difference <= VECTOR_PARITY * largest:
        raise ParityError(
            f"fp32 vectors differ from PyTorch's by {difference:.2g}, with numbers of up to {largest:.3g}"
        )
