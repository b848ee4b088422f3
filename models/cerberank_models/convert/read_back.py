"""Reads weights back from a checkpoint's ONNX graphs, for a folder that was written without `model.safetensors`.

The names, layouts and sharing of constants in a graph are up to the exporter. To find the weights, a network of the
same shape with random weights is exported in the same precision, so that both graphs have the same nodes. If a node of
this graph reads the random tensor of a weight, the same node of the checkpoint's graph reads the weight itself. Needs
onnx.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import Tensor

from cerberank_models.checkpoint.folder import Checkpoint, CheckpointError
from cerberank_models.convert.graphs import export_stages
from cerberank_models.convert.int8 import RangeBatches, dequantise, in_form
from cerberank_models.network.absorbed import can_absorb
from cerberank_models.network.ranking_network import RankingNetwork

PRECISIONS = ("fp32", "fp16", "int8")
"""The precisions in which weights can be read back, the most exact first."""
Array: TypeAlias = NDArray[np.generic]


def read_back(checkpoint: Checkpoint, precision: str) -> RankingNetwork:
    """The network in fp32 that computes the graphs of `precision`. Weights are exact only from fp32 graphs.

    int8 weights are converted to fp32, and activations are not quantised, so that scores are close to those of the
    graphs, but not equal. Biases of keys that cancel in a softmax are missing in graphs, and are set to zero. Raises
    CheckpointError if there are no graphs, or if another version of the exporter wrote them.
    """
    graphs = checkpoint.stage_graphs(precision)
    template = _random_network(checkpoint)
    encoder = checkpoint.encoder()
    golden = [encoder.encode(line.question, line.texts) for line in checkpoint.golden]
    form = in_form(template, precision, RangeBatches(golden, margin=1.0))
    state = {name: value.detach().numpy() for name, value in form.state_dict().items()}
    stored: dict[str, Tensor] = {}
    heads = template.config.body.attention_heads
    with tempfile.TemporaryDirectory() as scratch:
        template_graphs = export_stages(form, Path(scratch))
        for ours, theirs in zip(template_graphs, graphs, strict=True):
            stored |= _located(state, _constants(ours, theirs), attention_heads=heads)
    weights = dequantise(stored)
    if can_absorb(template):
        last = template.config.architecture.head_layers - 1
        for name in (f"heads.{head}.layers.{last}.key.bias" for head in range(len(template.heads))):
            weights.setdefault(name, torch.zeros_like(template.get_parameter(name)))
    if missing := sorted(set(template.state_dict()) - set(weights)):
        raise CheckpointError(f"{checkpoint.path}: no graph in {precision} holds {', '.join(missing)}")
    template.load_state_dict(weights, strict=True)
    return template


def _random_network(checkpoint: Checkpoint) -> RankingNetwork:
    """A network in which every parameter is random, including biases, so that no two parameters are equal."""
    ranker = RankingNetwork(checkpoint.config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in ranker.parameters():
            parameter.normal_(0.0, 0.5, generator=generator)
    return ranker


def _constants(ours: Path, theirs: Path) -> list[tuple[Array, Array]]:
    """The pairs of constants that the same nodes of two graphs read. The exporter omits biases that are zero.

    Raises CheckpointError if the nodes differ.
    """
    template = onnx.load(ours).graph
    other = onnx.load(theirs).graph
    nodes = list(zip_longest(template.node, other.node, fillvalue=onnx.NodeProto()))
    if any(one.op_type != two.op_type or len(one.input) < len(two.input) for one, two in nodes):
        raise CheckpointError(
            f"{theirs} has other operations than this version writes: another version of PyTorch's exporter or of "
            "cerberank wrote it, with which its weights can be read back, or heads that are alike became one in it"
        )
    values = {each.name: numpy_helper.to_array(each) for each in template.initializer}
    others = {each.name: numpy_helper.to_array(each) for each in other.initializer}
    names = {pair for one, two in nodes for pair in zip_longest(one.input, two.input, fillvalue="")}
    return [
        (values[one], others[two] if two else np.zeros_like(values[one]))
        for one, two in names
        if one in values and (two in others or not two)
    ]


def _located(
    state: Mapping[str, Array], constants: Sequence[tuple[Array, Array]], *, attention_heads: int
) -> dict[str, Tensor]:
    """For each tensor of `state`, which the known graph contains, the tensor at the same place in the other graph."""
    tensors = {}
    for name, value in state.items():
        for constant, other in constants:
            if constant.size != value.size or constant.dtype != value.dtype or constant.shape != other.shape:
                continue
            for layout in _layouts(value, attention_heads):
                if np.array_equal(constant.ravel(), value.ravel()[layout]):
                    wanted = np.empty_like(other.ravel())
                    wanted[layout] = other.ravel()
                    tensors[name] = torch.from_numpy(wanted.reshape(value.shape))
    return tensors


def _layouts(value: Array, attention_heads: int) -> Iterator[slice | NDArray[np.int64]]:
    """The orders in which a graph may store a tensor: unchanged, transposed, or transposed by attention head."""
    yield slice(None)
    if value.ndim == 2:
        numbers = np.arange(value.size).reshape(value.shape)
        yield numbers.T.ravel()
        if len(value) % attention_heads == 0:
            yield numbers.reshape(attention_heads, -1, value.shape[1]).transpose(0, 2, 1).ravel()
