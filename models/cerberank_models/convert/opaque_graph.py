"""Writes the one graph of an opaque network: log-odds `[N, 1]` from token ids, type ids and mask, `[N, S]`.

The graph is made from a sequence classifier of transformers. It has the same inputs as stage 0 of any ranker, so that
the backends can run it. Ids of padding are replaced by the model's own padding token.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import onnx
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import Tensor, nn

from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.graphs import export_module, is_large, save_graph, token_inputs


class OpaqueNetwork(nn.Module):
    """The function that the graph computes, by a sequence classifier of transformers with one or two labels."""

    def __init__(self, network: Any, *, pad: int, reads_types: bool) -> None:
        super().__init__()
        self.network = network.float().cpu().eval()
        self.pad = pad
        self.reads_types = reads_types

    def forward(self, token_ids: Tensor, type_ids: Tensor, mask: Tensor) -> Tensor:
        """The logit of the only label, or the second label's logit minus the first's."""
        types = {"token_type_ids": type_ids} if self.reads_types else {}
        ids = torch.where(mask, token_ids, self.pad)
        logits: Tensor = self.network(input_ids=ids, attention_mask=mask.to(torch.int64), **types).logits
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
