"""Writes the one graph of an opaque network: log-odds `[N, 1]` from token ids, type ids and mask, `[N, S]`.

The graph is made from a sequence classifier of transformers, or from an ONNX graph of one. It has the same inputs as
stage 0 of any ranker, so that the backends can run it. Ids of padding are replaced by the model's own padding token.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import Tensor, nn

from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.graphs import export_module, is_large, save_graph, token_inputs
from cerberank_models.convert.limits import check_external_data

PREFIX = "network/"
"""The prefix that is added to names within a shipped graph, so that they differ from those of the nodes around it."""
IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"
"""The names of the inputs in graphs that transformers' exporters write."""


class OpaqueNetwork(nn.Module):
    """The function that the graph computes, by a sequence classifier of transformers with one or two labels."""

    def __init__(self, network: Any, *, pad: int, reads_types: bool) -> None:
        super().__init__()
        self.network = network.float().cpu().eval()
        self.pad = pad
        self.reads_types = reads_types

    def forward(self, token_ids: Tensor, type_ids: Tensor, mask: Tensor) -> Tensor:
        """The logit of the only label, or the second label's logit minus the first's."""
        types = {TYPES: type_ids} if self.reads_types else {}
        ids = torch.where(mask, token_ids, self.pad)
        logits: Tensor = self.network(**{IDS: ids, MASK: mask.to(torch.int64)}, **types).logits
        return logits if logits.shape[1] == 1 else logits[:, 1:] - logits[:, :1]


def export_network(network: OpaqueNetwork, path: Path, *, longest: int) -> None:
    """Export `network` as a graph for pairs of at most `longest` tokens.

    Raises UnsupportedModelError if PyTorch's exporter cannot trace the network's `forward`.
    """
    inputs, shapes = token_inputs(longest)
    try:
        export_module(network, path, inputs=inputs, shapes=shapes, outputs=["logits"])
    except torch.onnx.OnnxExporterError as error:
        raise UnsupportedModelError(f"PyTorch cannot export this network to ONNX: {str(error).strip()}") from error


def adopt_graph(shipped: Path, path: Path, *, labels: int, pad: int) -> None:
    """Write the graph `shipped`, which computes `labels` logits from transformers' inputs, with this package's inputs.

    Raises UnsupportedModelError for other inputs or outputs, for tensors outside of the graph's folder, and for a file
    that is not a graph.
    """
    check_external_data(shipped)
    try:
        model = onnx.compose.add_prefix(onnx.load(shipped), PREFIX)
    except Exception as error:  # errors of protobuf and onnx have no common base class
        raise UnsupportedModelError(f"{shipped} is not an ONNX graph: {error}") from error
    graph = model.graph
    constants = {each.name for each in graph.initializer}
    inputs = {each.name.removeprefix(PREFIX): each for each in graph.input if each.name not in constants}
    if not {IDS, MASK} <= set(inputs) <= {IDS, MASK, TYPES}:
        raise UnsupportedModelError(
            f"{shipped} reads {', '.join(inputs)}: a graph that can be served reads {IDS} and {MASK}, "
            f"and may read {TYPES}"
        )
    logits = next((each for each in graph.output if each.name == PREFIX + "logits"), graph.output[0])
    _check_logits(shipped, logits, labels)
    before = [helper.make_node("Where", ["mask", "token_ids", "pad"], ["padded_ids"])]
    for name, value in ((IDS, "padded_ids"), (MASK, "mask"), (TYPES, "type_ids")):
        if name in inputs:
            kind = inputs[name].type.tensor_type.elem_type
            before.append(helper.make_node("Cast", [value], [inputs[name].name], to=kind))
    after = [
        helper.make_node("Cast", [logits.name], ["any_logits"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["any_logits", "shape"], ["by_label"]),
        helper.make_node("Gather", ["by_label", "last"], ["second" if labels == 2 else "logits"], axis=1),
    ]
    if labels == 2:
        after.append(helper.make_node("Gather", ["by_label", "first"], ["first_logit"], axis=1))
        after.append(helper.make_node("Sub", ["second", "first_logit"], ["logits"]))
    nodes = [*before, *graph.node, *after]
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(nodes)
    for name, kind in (("token_ids", TensorProto.INT64), ("type_ids", TensorProto.INT64), ("mask", TensorProto.BOOL)):
        graph.input.append(helper.make_tensor_value_info(name, kind, ["pairs", "tokens"]))
    graph.output.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["pairs", 1]))
    for name, values in (("pad", pad), ("shape", [-1, labels]), ("first", [0]), ("last", [labels - 1])):
        size = [len(values)] if isinstance(values, list) else []
        numbers = values if isinstance(values, list) else [values]
        graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, size, numbers))
    path.parent.mkdir(parents=True, exist_ok=True)
    save_graph(model, path)


def _check_logits(shipped: Path, output: onnx.ValueInfoProto, labels: int) -> None:
    """Raise UnsupportedModelError unless the graph states that its output has `labels` logits per pair.

    The output of a graph that is only an encoder is vectors, often without a stated width.
    """
    shape = output.type.tensor_type.shape.dim
    sizes = [each.dim_value if each.HasField("dim_value") else each.dim_param or "?" for each in shape]
    if not (len(sizes) == 2 and sizes[1] == labels) and not (len(sizes) == labels == 1):
        name = output.name.removeprefix(PREFIX)
        raise UnsupportedModelError(
            f"{shipped} gives {name}[{', '.join(map(str, sizes))}], not one row of {labels} logits a pair as its "
            "configuration says: it is an encoder without its head, or its output's shape is not stated"
        )


def quantise_graph(fp32: Path, path: Path) -> None:
    """Write the int8 form of a graph, by ONNX Runtime's dynamic quantisation of products with weights.

    The classifier's products, which read one vector per pair, stay in fp32. If several products share a weight, all
    weights have seven bits, for the reason in `int8.py`. The scale of a product's input is computed from each batch, so
    that a score depends slightly on the rest of its batch. Raises UnsupportedModelError if the graph has no product
    that can be quantised.
    """
    model = onnx.load(fp32)
    # Some of the shapes that PyTorch's exporter recorded contradict those that quantisation infers.
    del model.graph.value_info[:]
    classifier = [node for node in model.graph.node if node.op_type == "Gemm"]
    for number, node in enumerate(classifier):
        node.name = f"classifier-{number}"
    with tempfile.TemporaryDirectory() as folder:
        prepared, quantised = Path(folder) / "prepared.onnx", Path(folder) / "quantised.onnx"
        large = is_large(model)
        quant_pre_process(
            model,
            prepared,
            skip_optimization=True,
            skip_onnx_shape=True,
            skip_symbolic_shape=True,
            save_as_external_data=large,
            all_tensors_to_one_file=True,
        )
        quantize_dynamic(
            prepared,
            quantised,
            op_types_to_quantize=["MatMul"],
            nodes_to_exclude=[f"{node.name}_MatMul" for node in classifier],  # the names after ONNX Runtime's rewriting
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=_shares_weights(onnx.load(prepared, load_external_data=False)),
            use_external_data_format=large,
        )
        int8 = onnx.load(quantised)
    if not any(node.op_type == "MatMulInteger" for node in int8.graph.node):
        raise UnsupportedModelError("the graph has no product with constant weights that could be int8")
    path.parent.mkdir(parents=True, exist_ok=True)
    save_graph(int8, path)


def _shares_weights(model: onnx.ModelProto) -> bool:
    """True if two products read the same constant, as in DeBERTa the products for words and for positions do."""
    constants = {each.name for each in model.graph.initializer}
    read = [name for node in model.graph.node if node.op_type == "MatMul" for name in node.input if name in constants]
    return len(read) > len(set(read))
