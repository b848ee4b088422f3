"""A session runs on the device that was asked for, or none is opened; its int8 products are exact."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cerberank_models.backends import onnx_session
from cerberank_models.backends.onnx_session import EXACT_INT8, check_provider, open_session, products_saturate

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def test_a_silent_fall_back_to_the_processor_is_an_error() -> None:
    """ONNX Runtime that lists CUDA and runs on the processor is refused, with what is to be installed."""
    check_provider([CPU], "cpu")
    check_provider([CUDA, CPU], "cuda:1")
    with pytest.raises(RuntimeError, match=r"'cuda' needs .*CUDAExecutionProvider.*onnx-gpu"):
        check_provider([CPU], "cuda")


def products(path: Path, weight: np.ndarray, *, zero_points: bool) -> Path:
    """A graph of two products of `x` and `weight`, as the int8 form has them; the zero points are one shared tensor."""
    tensors = {"scale": np.float32(1), "zero": np.uint8(100), "scales": np.ones(weight.shape[1], np.float32)}
    tensors |= {"zeros": np.zeros(weight.shape[1], np.int8), "first": weight, "second": -weight}
    nodes = [
        helper.make_node(
            "MatMulIntegerToFloat",
            ["x", name, "scale", "scales", "zero", "zeros" if zero_points else ""],
            [f"{name}_product"],
            domain="com.microsoft",
        )
        for name in ("first", "second")
    ]
    outputs = [
        helper.make_tensor_value_info(f"{name}_product", TensorProto.FLOAT, None) for name in ("first", "second")
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.UINT8, ["rows", len(weight)])]
    kept = [numpy_helper.from_array(np.asarray(tensor), name) for name, tensor in tensors.items()]
    graph = helper.make_graph(
        nodes, "products", inputs, outputs, [each for each in kept if zero_points or each.name != "zeros"]
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def test_int8_products_are_exact_on_every_processor(tmp_path: Path) -> None:
    """Numbers whose pairs of products do not fit into 16 bits, in which processors without VNNI add them."""
    numbers = np.random.default_rng(0)
    weight = numbers.choice(np.asarray([-127, 127], np.int8), (64, 32))
    x = numbers.choice(np.asarray([0, 255], np.uint8), (5, 64))
    session = open_session(products(tmp_path / "graph.onnx", weight, zero_points=False), threads=1, device="cpu")
    first, second = (np.asarray(each) for each in session.run(None, {"x": x}))
    exact = (x.astype(np.int64) - 100) @ weight.astype(np.int64)
    assert (first == exact).all()
    assert (second == -exact).all()


@pytest.mark.parametrize("saturate", [None, True, False])
def test_weights_are_made_uint8_only_where_products_saturate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saturate: bool | None
) -> None:
    """On a processor with VNNI, uint8 weights would take more than twice the time; None asks this processor."""
    if saturate is not None:
        monkeypatch.setattr(onnx_session, "products_saturate", lambda: saturate)
    graph = products(tmp_path / "graph.onnx", np.ones((64, 32), np.int8), zero_points=False)
    options = open_session(graph, threads=1, device="cpu").get_session_options()
    expected = products_saturate() if saturate is None else saturate
    assert options.get_session_config_entry(EXACT_INT8) == ("1" if expected else "0")


def test_graphs_of_earlier_releases_open_on_every_processor(tmp_path: Path) -> None:
    """They share zero points, so that ONNX Runtime cannot change them; small numbers are right nevertheless."""
    weight = np.arange(-16, 16, dtype=np.int8).reshape(8, 4) * 8
    session = open_session(products(tmp_path / "graph.onnx", weight, zero_points=True), threads=1, device="cpu")
    x = np.arange(16, dtype=np.uint8).reshape(2, 8)
    assert (np.asarray(session.run(None, {"x": x})[0]) == (x.astype(np.int64) - 100) @ weight.astype(np.int64)).all()


def test_products_saturate_on_no_processor_that_has_vnni_or_is_not_x86() -> None:
    """Linux names the instructions; a processor that has them must not pay for weights made uint8."""
    if platform.machine() not in ("x86_64", "AMD64"):
        assert not products_saturate()
        return
    information = Path("/proc/cpuinfo")
    if not information.exists():
        pytest.skip("no /proc/cpuinfo to compare with")
    flags = set(information.read_text().split())
    assert products_saturate() == flags.isdisjoint({"avx512_vnni", "avx_vnni", "amx_int8"})


def test_the_runtime_tells_its_maker_nothing(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """ONNX Runtime 1.31 keeps a device id and a database of events in the user's folder unless it is told not to."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}
    script = f"from cerberank import Ranker; Ranker.load({str(tiny_checkpoint)!r}).rank('q', ['a', 'b'])"
    home = {"HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", script], env=environment | home, check=True)
    assert list(tmp_path.rglob("*")) == []
