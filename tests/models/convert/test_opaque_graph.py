from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from tests.opaque import own_graph

from cerberank_models.checkpoint.external_data import external_files
from cerberank_models.convert import graphs, opaque_graph
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.opaque_graph import OpaqueNetwork, export_network, quantise_graph


def run(graph: Path) -> np.ndarray:
    """The logit of one pair."""
    pair = {"token_ids": np.asarray([[2, 9, 3, 7, 3]]), "type_ids": np.asarray([[0, 0, 0, 1, 1]])}
    session = onnxruntime.InferenceSession(str(graph))
    return np.asarray(session.run(["logits"], pair | {"mask": np.ones((1, 5), dtype=np.bool_)})[0])


def test_int8_leaves_the_classifier_alone(tmp_path: Path) -> None:
    """One of two products is int8, near fp32; a graph without any is refused."""
    own_graph(tmp_path / "own.onnx")
    quantise_graph(tmp_path / "own.onnx", tmp_path / "int8" / "own.onnx")
    kinds = [node.op_type for node in onnx.load(tmp_path / "int8" / "own.onnx").graph.node]
    assert (kinds.count("MatMulInteger"), kinds.count("MatMul")) == (1, 1)
    difference = abs(run(tmp_path / "int8" / "own.onnx") - run(tmp_path / "own.onnx")).max()
    assert 0 < difference <= 0.1
    model = onnx.load(tmp_path / "own.onnx")
    for node in model.graph.node:
        node.op_type = "Add" if node.op_type == "MatMul" else node.op_type
    onnx.save(model, tmp_path / "none.onnx")
    with pytest.raises(UnsupportedModelError, match="no product"):
        quantise_graph(tmp_path / "none.onnx", tmp_path / "none" / "own.onnx")


def test_large_weights_lie_in_a_file_beside_each_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a lowered threshold a graph and its int8 form hold none, and compute what they compute otherwise."""
    for folder, threshold in (("whole", 1 << 30), ("split", 1000)):
        monkeypatch.setattr(graphs, "INLINE_BYTES", threshold)
        own = tmp_path / folder / "own.onnx"
        own_graph(own)
        quantise_graph(own, tmp_path / folder / "int8" / "own.onnx")
    for name in ("own.onnx", "int8/own.onnx"):
        split, whole = (tmp_path / folder / name for folder in ("split", "whole"))
        assert external_files(split.read_bytes()) == {"own.onnx.data"}
        assert external_files(whole.read_bytes()) == frozenset()
        assert split.with_name("own.onnx.data").stat().st_size > 1000
        assert (run(split) == run(whole)).all()


def test_a_forward_that_cannot_be_traced_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the exporter's reason; an export that really fails takes half a minute."""

    def fails(*_: object, **__: object) -> None:
        raise torch.onnx.OnnxExporterError("it depends on data")

    monkeypatch.setattr(opaque_graph, "export_module", fails)
    with pytest.raises(UnsupportedModelError, match="cannot export this network to ONNX: it depends on data"):
        export_network(OpaqueNetwork(torch.nn.Linear(1, 1), pad=0, reads_types=False), tmp_path / "x", longest=64)
