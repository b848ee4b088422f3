from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx_ir
import pytest
import torch
from tests.exports import exports_once
from tests.tiny import ONE_STAGE, random_ranker

GRAPH = '<ir_version: 8, opset_import: ["" : 17]> named (float[n] x) => (float[n] y) { y = Tanh(x) }'


def test_equal_networks_are_exported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By every process; other weights, settings or dimensions are another call, and what has no name is not kept."""
    calls = []

    def export(*call: object, **options: object) -> Any:
        calls.append((call, options))
        return torch.onnx.ONNXProgram(onnx_ir.from_proto(onnx.parser.parse_model(GRAPH)), None)

    def exported(network: torch.nn.Module, most: int) -> None:
        with exports_once(tmp_path):
            shapes = {"x": {0: torch.export.Dim("n", max=most)}}
            program = torch.onnx.export(network, kwargs={"x": torch.zeros(2)}, dynamic_shapes=shapes)
        assert program.model.graph.name == "named"

    monkeypatch.setattr("torch.onnx.export", export)
    for network, most, count in [
        (random_ranker(**ONE_STAGE), 9, 1),
        (random_ranker(**ONE_STAGE), 9, 1),
        (random_ranker(**ONE_STAGE), 8, 2),
        (random_ranker(seed=1, **ONE_STAGE), 9, 3),
        (random_ranker(**ONE_STAGE | {"heads": 2}), 9, 4),
    ]:
        exported(network, most)
        assert len(calls) == count
    nameless = torch.nn.Identity()
    nameless.register_forward_hook(lambda *_: None)
    for count in (5, 6):
        exported(nameless, 9)
        assert len(calls) == count
