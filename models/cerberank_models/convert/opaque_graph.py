"""The one graph of an opaque network: from token ids, type ids and mask `[N, S]` to the log-odds `[N, 1]`.

In: a sequence classifier of transformers, or an ONNX graph of one. Out: a graph with the inputs of every ranker's first
stage, so that the backends run it like any other. What padding holds is replaced by the model's own padding token.
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
"""Begins the names within a shipped graph, which cannot then be those of the nodes around it."""
IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"
"""The inputs of transformers' encoders, by the names that its exporters write."""


class OpaqueNetwork(nn.Module):
    """A sequence classifier of transformers with one or two labels, as the function that its graph computes."""

    def __init__(self, network: Any, *, pad: int, reads_types: bool) -> None:
        super().__init__()
        self.network, self.pad, self.reads_types = network.float().cpu().eval(), pad, reads_types

    def forward(self, token_ids: Tensor, type_ids: Tensor, mask: Tensor) -> Tensor:
        """The logit of one label, or the second's less the first's."""
        types = {TYPES: type_ids} if self.reads_types else {}
        ids = torch.where(mask, token_ids, self.pad)
        logits: Tensor = self.network(**{IDS: ids, MASK: mask.to(torch.int64)}, **types).logits
        return logits if logits.shape[1] == 1 else logits[:, 1:] - logits[:, :1]


def export_network(network: OpaqueNetwork, path: Path, *, longest: int) -> None:
    """Write the graph that `network` computes for pairs of at most `longest` tokens, by its own forward.

    Raises UnsupportedModelError for a forward that PyTorch's exporter cannot trace.
    """
    inputs, shapes = token_inputs(longest)
    try:
        export_module(network, path, inputs=inputs, shapes=shapes, outputs=["logits"])
    except torch.onnx.OnnxExporterError as error:
        raise UnsupportedModelError(f"PyTorch cannot export this network to ONNX: {str(error).strip()}") from error


def adopt_graph(shipped: Path, path: Path, *, labels: int, pad: int) -> None:
    """Write the graph `shipped`, which takes transformers' inputs to the logits of `labels` labels, as ours.

    Raises UnsupportedModelError for other inputs or outputs, for tensors outside of its folder, and for what is not a
    graph.
    """
    check_external_data(shipped)
    try:
        model = onnx.compose.add_prefix(onnx.load(shipped), PREFIX)
    except Exception as error:  # protobuf's DecodeError, or onnx's for external data, which share no base
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
    for name, own in ((IDS, "padded_ids"), (MASK, "mask"), (TYPES, "type_ids")):
        if name in inputs:
            kind = inputs[name].type.tensor_type.elem_type
            before.append(helper.make_node("Cast", [own], [inputs[name].name], to=kind))
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
    """Raise UnsupportedModelError for an output that is not stated to be `labels` logits a pair.

    A graph that is an encoder alone gives vectors, often of a width that it does not state.
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
    """Write the int8 form of a graph: ONNX Runtime's dynamic quantisation of its products with weights.

    The classifier's products, which read one vector a pair, stay fp32. Where products share a weight, all weights have
    seven bits, for the reason that `int8.py` gives. The scale of each product's input is taken from
    the batch that is run, so that a score depends a little on what runs beside it. Raises UnsupportedModelError where
    there is no product that can be quantised.
    """
    model = onnx.load(fp32)
    # Shapes that PyTorch's exporter noted: some contradict those that quantisation infers.
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
            nodes_to_exclude=[f"{node.name}_MatMul" for node in classifier],  # what ONNX Runtime turns them into
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
    """True if two products read the same constant, as DeBERTa's of words and of positions do."""
    constants = {each.name for each in model.graph.initializer}
    read = [name for node in model.graph.node if node.op_type == "MatMul" for name in node.input if name in constants]
    return len(read) > len(set(read))
