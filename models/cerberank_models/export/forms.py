"""The ONNX forms of a ranker: the graphs of one precision, and the backend that runs them. Needs onnx, onnxruntime."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from cerberank_models.backends.contract import Backend
from cerberank_models.backends.onnx_backend import OnnxBackend
from cerberank_models.backends.onnx_device_backend import OnnxDeviceBackend
from cerberank_models.encoding import EncodedPairs
from cerberank_models.export.graphs import export_stages
from cerberank_models.export.int8 import measure_ranges, quantise
from cerberank_models.network.precision import in_precision
from cerberank_models.network.ranker import Ranker


def export_form(
    precision: str, ranker: Ranker, folder: Path, *, calibration: Sequence[EncodedPairs], margin: float
) -> tuple[Backend[Any], list[Path]]:
    """Export `ranker` in `precision` (fp32, fp16, int8) to `folder`; returns the backend that runs it and its graphs.

    int8 measures its ranges on `calibration` and widens them by the factor `margin`.
    """
    if precision == "fp16":
        graphs = export_stages(in_precision(copy.deepcopy(ranker), torch.float16), folder, gather=True)
        return OnnxDeviceBackend(graphs, ranker.config), graphs
    if precision == "int8":
        quantised = quantise(ranker, measure_ranges(ranker, calibration), margin=margin)
        graphs = export_stages(quantised, folder)
    else:
        graphs = export_stages(ranker, folder)
    return OnnxBackend(graphs, ranker.config, precision=precision), graphs
