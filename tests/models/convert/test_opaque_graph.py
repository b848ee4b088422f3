from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from tests.bounds import LOGITS
from tests.opaque import graph_logits, shipped_graph

from cerberank_models.checkpoint.external_data import external_files
from cerberank_models.convert import graphs, opaque_graph
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.opaque_graph import OpaqueNetwork, adopt_graph, export_network, quantise_graph

IDS, TYPES = [2, 9, 3, 7, 3], [0, 0, 0, 1, 1]


def run(graph: Path, padding: int = 0) -> np.ndarray:
    """The logit of one pair that is padded with `padding` ids that are not words."""
    ids = np.asarray([[*IDS, *[299] * padding]])
    types = np.asarray([[*TYPES, *[1] * padding]])
    mask = np.arange(ids.shape[1])[None] < len(IDS)
    session = onnxruntime.InferenceSession(str(graph))
    return np.asarray(session.run(["logits"], {"token_ids": ids, "type_ids": types, "mask": mask})[0])


@pytest.mark.parametrize(("labels", "integers", "output"), [(1, "int64", "logits"), (2, "int32", "mask")])
def test_a_shipped_graph_takes_our_inputs(labels: int, integers: str, output: str, tmp_path: Path) -> None:
    """Its logit, or the second's less the first's, whatever its integers and whatever its names are."""
    shipped_graph(tmp_path / "shipped.onnx", labels=labels, integers=integers, output=output)
    adopt_graph(tmp_path / "shipped.onnx", tmp_path / "own.onnx", labels=labels, pad=0)
    logits = graph_logits(IDS, TYPES, labels=labels)
    for padding in (0, 3):
        got = run(tmp_path / "own.onnx", padding)
        assert got.shape == (1, 1)
        assert abs(got[0, 0] - (logits[-1] - (logits[0] if labels == 2 else 0))) <= LOGITS


def test_padding_is_the_models_own_token(tmp_path: Path) -> None:
    """A graph that sums over padding shows which id it read there."""
    shipped_graph(tmp_path / "shipped.onnx", types=False, padding_counts=True)
    for pad in (0, 17):
        adopt_graph(tmp_path / "shipped.onnx", tmp_path / f"{pad}.onnx", labels=1, pad=pad)
    shipped = onnxruntime.InferenceSession(str(tmp_path / "shipped.onnx"))
    for pad in (0, 17):
        ids = np.asarray([[*IDS, pad, pad]])
        expected = shipped.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0]
        assert abs(run(tmp_path / f"{pad}.onnx", 2) - expected).max() <= LOGITS


def test_other_inputs_and_labels_are_refused(tmp_path: Path) -> None:
    """Refused are inputs that cannot be fed, another number of labels, an encoder without a head, and other files."""
    shipped_graph(tmp_path / "extra.onnx", extra="position_ids")
    shipped_graph(tmp_path / "two.onnx", labels=2)
    shipped_graph(tmp_path / "bare.onnx", labels=1, output="last_hidden_state")
    bare = onnx.load(tmp_path / "bare.onnx")
    bare.graph.output[0].CopyFrom(
        onnx.helper.make_tensor_value_info("last_hidden_state", onnx.TensorProto.FLOAT, ["n", "s", "width"])
    )
    onnx.save(bare, tmp_path / "bare.onnx")
    (tmp_path / "none.onnx").write_bytes(b"\x00not a graph")
    for name, message in (
        ("extra", "position_ids: a graph that can be"),
        ("two", r"gives logits\[n, 2\], not one row of 1 logits"),
        ("bare", r"gives last_hidden_state\[n, s, width\].* an encoder without its head"),
        ("none", "not an ONNX"),
    ):
        with pytest.raises(UnsupportedModelError, match=message):
            adopt_graph(tmp_path / f"{name}.onnx", tmp_path / "own.onnx", labels=1, pad=0)
        assert not (tmp_path / "own.onnx").exists()


def test_int8_leaves_the_classifier_alone(tmp_path: Path) -> None:
    """One of two products is int8, near fp32; a graph without any is refused."""
    shipped_graph(tmp_path / "shipped.onnx")
    adopt_graph(tmp_path / "shipped.onnx", tmp_path / "own.onnx", labels=1, pad=0)
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
    """With a lowered threshold a shipped graph and its int8 form hold none, and compute what they compute otherwise."""
    shipped_graph(tmp_path / "shipped.onnx")
    for folder, threshold in (("whole", 1 << 30), ("split", 1000)):
        monkeypatch.setattr(graphs, "INLINE_BYTES", threshold)
        own = tmp_path / folder / "own.onnx"
        adopt_graph(tmp_path / "shipped.onnx", own, labels=1, pad=0)
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
