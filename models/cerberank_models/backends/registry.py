"""Which backends there are, what each can do, and how it is opened.

Another backend is a module that fulfils `contract.Backend`, an entry in `BACKENDS` and an extra in pyproject.toml:
settings, command lines, the estimate of memory and the loader read the entry. A backend's libraries are imported when
it is opened, so that a service that runs ONNX installs without torch and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from cerberank_models.backends.contract import Backend
from cerberank_models.backends.processors import usable_processors
from cerberank_models.checkpoint.folder import Checkpoint


class Opener(Protocol):
    """Opens a checkpoint's ranker; see `open_backend` for the arguments and what it raises."""

    def __call__(
        self, checkpoint: Checkpoint, *, precision: str, threads: int | None, device: str, graph_tokens: int
    ) -> Backend[Any]:
        """Import the libraries, read the weights or graphs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendSpec:
    """What others need to know of a backend before it is opened."""

    name: str
    """The name that settings and command lines use."""
    open: Opener
    precisions: tuple[str, ...]
    devices: tuple[str, ...]
    """Kinds of devices that it is tested on, named in help texts; another kind is tried all the same."""
    files: Callable[[Iterable[str], str], tuple[str, ...]]
    """Picks the files that it reads from a checkpoint's file names, for a precision; their sizes decide its memory."""
    low_priority_devices: tuple[str, ...] = ()
    """Devices on which a low-priority thread may open it. On others opening starts threads, which would inherit the low
    priority and keep it while they serve requests."""


def _open_onnx(
    checkpoint: Checkpoint, *, precision: str, threads: int | None, device: str, graph_tokens: int
) -> Backend[Any]:
    if graph_tokens:
        raise ValueError("CUDA graphs belong to the torch backend")
    from cerberank_models.backends.onnx_backend import OnnxBackend  # noqa: PLC0415 - torch users need no onnxruntime

    graphs = checkpoint.stage_graphs(precision)
    if precision == "fp16":
        from cerberank_models.backends.onnx_device_backend import OnnxDeviceBackend  # noqa: PLC0415

        return OnnxDeviceBackend(graphs, checkpoint.config, threads=threads, device=device)
    return OnnxBackend(graphs, checkpoint.config, threads=threads, device=device)


def _open_torch(
    checkpoint: Checkpoint, *, precision: str, threads: int | None, device: str, graph_tokens: int
) -> Backend[Any]:
    import torch  # noqa: PLC0415 - a service that runs ONNX installs without torch

    from cerberank_models.backends.torch_backend import TorchBackend  # noqa: PLC0415

    torch.set_num_threads(threads or usable_processors())
    return TorchBackend.from_checkpoint(checkpoint, device=device, precision=precision, graph_tokens=graph_tokens)


def _graphs(names: Iterable[str], precision: str) -> tuple[str, ...]:
    return tuple(name for name in names if name.startswith(f"onnx/{precision}/"))


def _weights(names: Iterable[str], precision: str) -> tuple[str, ...]:
    return tuple(name for name in names if name == "model.safetensors")  # cast to any precision when it is loaded


BACKENDS: Mapping[str, BackendSpec] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            BackendSpec(
                name="onnx",
                open=_open_onnx,
                precisions=("int8", "fp32", "fp16"),
                devices=("cpu", "cuda"),
                files=_graphs,
                low_priority_devices=("cpu",),
            ),
            BackendSpec(
                name="torch",
                open=_open_torch,
                precisions=("fp32", "bf16", "fp16"),
                devices=("cpu", "cuda"),
                files=_weights,
            ),
        )
    }
)
"""Every backend by its name, the default one first."""


def open_backend(
    checkpoint: Checkpoint,
    *,
    kind: str = "onnx",
    precision: str = "int8",
    threads: int | None = None,
    device: str = "cpu",
    graph_tokens: int = 0,
    backends: Mapping[str, BackendSpec] = BACKENDS,
) -> Backend[Any]:
    """Open the checkpoint's ranker in a backend on `device` (`cpu`, `cuda`, `cuda:1`).

    `threads` None takes the processors that this process may use. `graph_tokens`, for torch on CUDA in bf16 or fp16:
    steps of up to so many tokens run as CUDA graphs, captured here.
    Raises ValueError for an unknown `kind` or precision or where there can be no CUDA graphs, CheckpointError when
    the checkpoint lacks what `kind` and `precision` need, RuntimeError when the device's libraries are not installed.
    """
    return spec_of(kind, backends).open(
        checkpoint, precision=precision, threads=threads, device=device, graph_tokens=graph_tokens
    )


def spec_of(name: str, backends: Mapping[str, BackendSpec] = BACKENDS) -> BackendSpec:
    """The entry of the backend `name`. Raises ValueError, which lists the existing backends, for an unknown name."""
    if name not in backends:
        raise ValueError(f"there is no backend {name!r}, only {', '.join(backends)}")
    return backends[name]


def check_precision(name: str, precision: str, backends: Mapping[str, BackendSpec] = BACKENDS) -> str:
    """Return `precision` if the backend `name` has it, else raise ValueError, which lists those that it has."""
    if precision not in (have := spec_of(name, backends).precisions):
        raise ValueError(f"the backend {name} has no precision {precision!r}, only {', '.join(have)}")
    return precision


def precisions_help(backends: Mapping[str, BackendSpec] = BACKENDS) -> str:
    """The precisions of every backend, for help texts and error messages.

    >>> precisions_help()
    'int8, fp32, fp16 with onnx; fp32, bf16, fp16 with torch'
    """
    return "; ".join(f"{', '.join(spec.precisions)} with {spec.name}" for spec in backends.values())
