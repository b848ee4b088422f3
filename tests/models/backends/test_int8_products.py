"""The probe of int8 products computes what it says, and agrees with the processor's flags."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from cerberank_models.backends.int8_products import GRAPH, products_saturate


def test_the_probe_is_a_product_that_does_not_fit_into_16_bits() -> None:
    """One MatMulInteger of an int8 weight of 127s, whose pairs of products with 255 exceed the largest int16."""
    model = onnx.load(GRAPH)
    onnx.checker.check_model(model)
    assert [(node.op_type, list(node.input)) for node in model.graph.node] == [("MatMulInteger", ["x", "weight"])]
    (weight,) = (numpy_helper.to_array(tensor) for tensor in model.graph.initializer)
    assert weight.dtype == np.int8
    assert weight.shape == (64, 32)
    assert (weight == 127).all()
    assert np.iinfo(np.int16).max < 2 * 255 * 127


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
