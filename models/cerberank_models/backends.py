"""Opens the backend that a setting names; torch is imported only when it is asked for."""

from __future__ import annotations

from typing import Any, Literal

from cerberank_models.backend import Backend
from cerberank_models.checkpoint import Checkpoint
from cerberank_models.processors import usable_processors

BackendKind = Literal["onnx", "torch"]


def open_backend(
    checkpoint: Checkpoint,
    *,
    kind: BackendKind = "onnx",
    precision: str = "int8",
    threads: int | None = None,
    device: str = "cpu",
) -> Backend[Any]:
    """The checkpoint's ranker, ready to run on `device` (`cpu`, `cuda`, `cuda:1`).

    Raises CheckpointError when the checkpoint lacks what `kind` and `precision` need.
    """
    if kind == "torch":
        import torch  # noqa: PLC0415 - a service that runs ONNX installs without torch

        from cerberank_models.torch_backend import TorchBackend  # noqa: PLC0415

        torch.set_num_threads(threads or usable_processors())
        return TorchBackend.from_checkpoint(checkpoint, device=device, precision=precision)
    from cerberank_models.onnx_backend import OnnxBackend  # noqa: PLC0415 - nor torch users onnxruntime

    return OnnxBackend(checkpoint.stage_graphs(precision), checkpoint.config, threads=threads, device=device)
