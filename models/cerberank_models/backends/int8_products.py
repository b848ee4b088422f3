"""Finds out whether ONNX Runtime's products of uint8 and int8 numbers saturate on this processor.

x86-64 processors without VNNI or AMX add pairs of such products in 16 bits. Flags of the processor tell this only
together with the kernel that ONNX Runtime chooses, so a product that does not fit into 16 bits is computed instead.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

GRAPH = Path(__file__).with_name("int8_products.onnx")
"""`MatMulInteger` of `x`, uint8 [rows, 64], and a weight, int8 [64, 32], whose numbers are all 127."""


def products_saturate() -> bool:
    """True when a product of 255s and 127s is not the exact number; takes about a millisecond."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(GRAPH), options, providers=["CPUExecutionProvider"])
    x = np.full((4, 64), 255, np.uint8)
    return bool((np.asarray(session.run(None, {"x": x})[0]) != 64 * 255 * 127).any())
