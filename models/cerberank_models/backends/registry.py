"""Opens the backend that a setting names; torch is imported only when it is asked for."""

from __future__ import annotations

from typing import Any, Literal

from cerberank_models.backends.contract import Backend
from cerberank_models.backends.processors import usable_processors
from cerberank_models.checkpoint.folder import Checkpoint

BackendKind = Literal["onnx", "torch"]


def open_backend(
    checkpoint: Checkpoint,
    *,
    kind: BackendKind = "onnx",
    precision: str = "int8",
    threads: int | None = None,
    device: str = "cpu",
    graph_tokens: int = 0,
) -> Backend[Any]:
    """The checkpoint's ranker, ready to run on `device` (`cpu`, `cuda`, `cuda:1`).

    `graph_tokens`, for torch on CUDA in bf16 or fp16: steps of up to so many tokens run as CUDA graphs, captured here.
    Raises ValueError where they cannot be, CheckpointError when the checkpoint lacks what `kind` and `precision` need.
    """
    if kind == "torch":
        import torch  # noqa: PLC0415 - a service that runs ONNX installs without torch

        from cerberank_models.backends.torch_backend import TorchBackend  # noqa: PLC0415

        torch.set_num_threads(threads or usable_processors())
        return TorchBackend.from_checkpoint(checkpoint, device=device, precision=precision, graph_tokens=graph_tokens)
    if graph_tokens:
        raise ValueError("CUDA graphs belong to the torch backend")
    from cerberank_models.backends.onnx_backend import OnnxBackend  # noqa: PLC0415 - nor torch users onnxruntime

    if precision == "fp16":
        from cerberank_models.backends.onnx_device_backend import OnnxDeviceBackend  # noqa: PLC0415

        graphs = checkpoint.stage_graphs(precision)
        return OnnxDeviceBackend(graphs, checkpoint.config, threads=threads, device=device)
    return OnnxBackend(checkpoint.stage_graphs(precision), checkpoint.config, threads=threads, device=device)
