"""The backends, their abilities, and the functions that open them.

Another backend is a module that fulfils `contract.Backend`, an entry in `BACKENDS` and an extra in pyproject.toml:
settings, command lines, the estimate of memory and the loader read the entry. A backend's libraries are imported when
it is opened, so that a service that runs ONNX installs without torch and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from cerberank_models.backends.contract import Backend
from cerberank_models.backends.device_memory import MemoryReader, nvml_memory, torch_memory
from cerberank_models.backends.processors import compute_threads
from cerberank_models.backends.without_pairs import WithoutPairs
from cerberank_models.checkpoint.folder import Checkpoint


class Opener(Protocol):
    """Opens a checkpoint's ranker; see `open_backend` for the arguments and what it raises."""

    def __call__(
        self, checkpoint: Checkpoint, *, precision: str, threads: int | None, device: str, graph_tokens: int | None
    ) -> Backend[Any]:
        """Import the libraries, read the weights or graphs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendSpec:
    """The facts about a backend that others need before it is opened."""

    name: str
    """The name that settings and command lines use."""
    open: Opener
    precisions: tuple[str, ...]
    devices: tuple[str, ...]
    """Kinds of devices that it is tested on, named in help texts; another kind is tried all the same."""
    files: Callable[[Iterable[str], str], tuple[str, ...]]
    """Picks the files that it reads from a checkpoint's file names, for a precision; their sizes decide its memory."""
    usual: Mapping[str, str]
    """The precision to take where none is named, by kind of device."""
    first_on: tuple[str, ...] = ()
    """Kinds of devices on which it is taken where no backend is named."""
    weight_share: Mapping[str, float] = field(default_factory=dict)
    """Share of these files' bytes that the weights take on a GPU, by precision; all of them in any other precision."""
    device_memory: MemoryReader = nvml_memory
    """Reads the memory of a device before a ranker is opened on it."""
    low_priority_devices: tuple[str, ...] = ()
    """Devices on which a low-priority thread may open it. On others opening starts threads, which would inherit the low
    priority and keep it while they serve requests."""


def _open_onnx(
    checkpoint: Checkpoint, *, precision: str, threads: int | None, device: str, graph_tokens: int | None
) -> Backend[Any]:
    if graph_tokens:
        raise ValueError("CUDA graphs belong to the torch backend")
    from cerberank_models.backends.onnx_backend import OnnxBackend  # noqa: PLC0415 - torch users need no onnxruntime

    graphs = checkpoint.stage_graphs(precision)
    if precision == "fp16":
        from cerberank_models.backends.onnx_device_backend import OnnxDeviceBackend  # noqa: PLC0415

        return OnnxDeviceBackend(graphs, checkpoint.config, precision=precision, threads=threads, device=device)
    return OnnxBackend(graphs, checkpoint.config, precision=precision, threads=threads, device=device)


def _open_torch(
    checkpoint: Checkpoint, *, precision: str, threads: int | None, device: str, graph_tokens: int | None
) -> Backend[Any]:
    import torch  # noqa: PLC0415 - a service that runs ONNX installs without torch

    from cerberank_models.backends.torch_backend import TorchBackend  # noqa: PLC0415

    torch.set_num_threads(compute_threads(threads))
    return TorchBackend.from_checkpoint(checkpoint, device=device, precision=precision, graph_tokens=graph_tokens)


def _graphs(names: Iterable[str], precision: str) -> tuple[str, ...]:
    return tuple(name for name in names if name.startswith((f"onnx/{precision}/", f"first-stage/onnx/{precision}/")))


def _weights(names: Iterable[str], precision: str) -> tuple[str, ...]:
    # Cast to any precision when they are loaded.
    return tuple(name for name in names if name in ("model.safetensors", "first-stage/model.safetensors"))


BACKENDS: Mapping[str, BackendSpec] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            BackendSpec(
                name="onnx",
                open=_open_onnx,
                precisions=("int8", "fp32", "fp16"),
                devices=("cpu", "cuda"),
                usual=MappingProxyType({"cpu": "int8", "cuda": "fp16"}),
                first_on=("cpu",),
                files=_graphs,
                low_priority_devices=("cpu",),
            ),
            BackendSpec(
                name="torch",
                open=_open_torch,
                precisions=("fp32", "bf16", "fp16"),
                devices=("cpu", "cuda"),
                usual=MappingProxyType({"cpu": "fp32", "cuda": "fp16"}),
                first_on=("cuda",),
                files=_weights,
                weight_share={"bf16": 0.5, "fp16": 0.5},  # the file is fp32
                device_memory=torch_memory,
            ),
        )
    }
)
"""Every backend by its name."""


def open_backend(
    checkpoint: Checkpoint,
    *,
    kind: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    graph_tokens: int | None = None,
    backends: Mapping[str, BackendSpec] = BACKENDS,
) -> Backend[Any]:
    """Open the checkpoint's ranker in a backend on `device` (`cpu`, `cuda`, `cuda:1`).

    A `kind` or precision that is None is the device's usual one (`usual_backend`, `usual_precision`).
    `threads` None takes the processors that this process may use. `graph_tokens`, for torch on CUDA in bf16 or fp16:
    steps of up to so many tokens run as CUDA graphs, captured here; None takes the backend's default, 0 captures none.
    The backend's `precision` tells whether it is computed in bf16 because fp16 would overflow.
    Raises ValueError for an unknown `kind` or precision or where there can be no CUDA graphs, CheckpointError when
    the checkpoint lacks what `kind` and `precision` need, DeviceError when the device's libraries are not installed.
    """
    kind = kind or usual_backend(device, backends)
    precision = check_precision(kind, precision or usual_precision(kind, device, backends), backends)
    if not checkpoint.config.reads_pairs:
        return WithoutPairs(checkpoint.config, precision)
    return spec_of(kind, backends).open(
        checkpoint, precision=precision, threads=threads, device=device, graph_tokens=graph_tokens
    )


def usual_backend(device: str, backends: Mapping[str, BackendSpec] = BACKENDS) -> str:
    """The backend to take on `device` where none is named; on an unknown kind of device the first one.

    >>> usual_backend("cpu"), usual_backend("cuda:1")
    ('onnx', 'torch')
    """
    kind = device.partition(":")[0]
    return next((name for name, spec in backends.items() if kind in spec.first_on), next(iter(backends)))


def usual_precision(name: str, device: str, backends: Mapping[str, BackendSpec] = BACKENDS) -> str:
    """The precision to take with the backend `name` on `device`; raises ValueError for an unknown backend.

    >>> usual_precision("onnx", "cpu"), usual_precision("torch", "cpu"), usual_precision("torch", "cuda")
    ('int8', 'fp32', 'fp16')
    """
    spec = spec_of(name, backends)
    return spec.usual.get(device.partition(":")[0], spec.precisions[0])


@dataclass(frozen=True, slots=True)
class Form:
    """The way in which a checkpoint is run."""

    backend: str
    precision: str
    reason: str
    """The reason for the choice, in words."""


def form_for(
    names: Collection[str],
    device: str,
    *,
    backend: str | None = None,
    precision: str | None = None,
    backends: Mapping[str, BackendSpec] = BACKENDS,
) -> Form:
    """The backend and precision to run a checkpoint of the files `names` on `device`, where not both are given.

    The backend is the device's usual one, or another one where the checkpoint has nothing for that in any precision: a
    decoder has weights alone. The precision is the usual one, or fp32 where that is all that the checkpoint has.
    Nothing is timed: processors of one kind choose alike. A checkpoint that nothing can run gets the usual form, whose
    opener says what is missing.

    >>> form_for(["onnx/fp32/stage-0.onnx"], "cpu")
    Form(backend='onnx', precision='fp32', reason='it has no graphs in int8')
    >>> form_for(["model.safetensors"], "cpu")
    Form(backend='torch', precision='fp32', reason='it has nothing that onnx runs')

    Raises ValueError for an unknown backend, or a precision that it lacks.
    """

    def reads(kind: str, *precisions: str) -> bool:
        return any(spec_of(kind, backends).files(names, each) for each in precisions)

    usual = usual_backend(device, backends)
    kinds = (backend,) if backend else (usual, *backends)
    kind = next((each for each in kinds if reads(each, *spec_of(each, backends).precisions)), kinds[0])
    chosen = usual_precision(kind, device, backends)
    if precision:
        return Form(kind, check_precision(kind, precision, backends), "as set")
    if not reads(kind, chosen) and reads(kind, "fp32"):
        return Form(kind, "fp32", f"it has no graphs in {chosen}")
    if kind != usual and not backend:
        return Form(kind, chosen, f"it has nothing that {usual} runs")
    return Form(kind, chosen, "as set" if backend else f"usual on a {'processor' if device == 'cpu' else 'GPU'}")


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
