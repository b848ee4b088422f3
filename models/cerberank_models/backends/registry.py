"""The table of backends, and the functions that choose and open one.

To add a backend, write a module that implements `contract.Backend`, an entry in `BACKENDS` and an extra in
pyproject.toml. Settings, commands, the estimate of memory and the loader read the entry. The libraries of a backend are
imported when it is opened, so that a service can run ONNX without torch, and torch without ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from cerberank_models.backends.device_memory import MemoryReader, nvml_memory, torch_memory
from cerberank_models.backends.processors import compute_threads
from cerberank_models.backends.stage_contract import Backend
from cerberank_models.backends.without_pairs import WithoutPairs
from cerberank_models.checkpoint.folder import Checkpoint


class Opener(Protocol):
    """Opens a checkpoint's ranker; see `open_backend` for the arguments and the errors."""

    def __call__(
        self, checkpoint: Checkpoint, *, precision: str, threads: int | None, device: str, graph_tokens: int | None
    ) -> Backend[Any]:
        """Import the libraries, and read the weights or graphs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendSpec:
    """The properties of a backend that are needed before it is opened."""

    name: str
    """The name of the backend in settings and commands."""
    open: Opener
    precisions: tuple[str, ...]
    devices: tuple[str, ...]
    """The kinds of devices on which the backend is tested, for help texts. Other kinds are not rejected."""
    files: Callable[[Iterable[str], str], tuple[str, ...]]
    """Selects, from a checkpoint's file names, the files that the backend reads in a precision. Their sizes are used to
    estimate its memory."""
    usual: Mapping[str, str]
    """The default precision by kind of device."""
    first_on: tuple[str, ...] = ()
    """The kinds of devices for which this is the default backend."""
    weight_share: Mapping[str, float] = field(default_factory=dict)
    """By precision, the bytes that the weights take on a GPU as a share of the bytes of `files`; 1 if not listed."""
    device_memory: MemoryReader = nvml_memory
    """Reads the memory of a device before a ranker is opened on it."""
    runs_programs: bool = False
    """True if a checkpoint's files are programs (graphs), which may compute without an end or allocate any memory."""
    low_priority_devices: tuple[str, ...] = ()
    """The kinds of devices on which a low-priority thread may open the backend. On other devices opening starts
    threads, which would inherit the low priority and keep it while they serve requests."""


def _open_onnx(
    checkpoint: Checkpoint, *, precision: str, threads: int | None, device: str, graph_tokens: int | None
) -> Backend[Any]:
    if graph_tokens:
        raise ValueError("CUDA graphs belong to the torch backend")
    from cerberank_models.backends.onnx_backend import OnnxBackend  # noqa: PLC0415 - torch users need no onnxruntime

    graphs = checkpoint.stage_graphs(precision)
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
    # The same weights for every precision, because they are cast when they are loaded.
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
                runs_programs=True,
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


def open_backend(
    checkpoint: Checkpoint,
    *,
    kind: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    graph_tokens: int | None = None,
) -> Backend[Any]:
    """Open the checkpoint's ranker in a backend on `device` (`cpu`, `cuda`, `cuda:1`).

    If `kind` or `precision` is None, it is the default for the device (`usual_backend`, `usual_precision`). If fp16
    would overflow, the backend computes in bf16 instead, and its `precision` says so. `threads` None uses all
    processors that this process may use.

    `graph_tokens` is for torch on CUDA in bf16 or fp16: CUDA graphs for steps of up to so many tokens are captured
    here. None means the backend's default, and 0 means no graphs.

    Raises ValueError for an unknown `kind` or precision, or if CUDA graphs are not possible; CheckpointError if the
    checkpoint lacks files that `kind` and `precision` need; DeviceError if the device's libraries are not installed.
    """
    kind = kind or usual_backend(device)
    precision = check_precision(kind, precision or usual_precision(kind, device))
    if not checkpoint.config.reads_pairs:
        return WithoutPairs(checkpoint.config, precision)
    return spec_of(kind).open(
        checkpoint, precision=precision, threads=threads, device=device, graph_tokens=graph_tokens
    )


def usual_backend(device: str) -> str:
    """The default backend on `device`; on an unknown kind of device the first backend.

    >>> usual_backend("cpu"), usual_backend("cuda:1")
    ('onnx', 'torch')
    """
    kind = device.partition(":")[0]
    return next((name for name, spec in BACKENDS.items() if kind in spec.first_on), next(iter(BACKENDS)))


def usual_precision(name: str, device: str) -> str:
    """The default precision of the backend `name` on `device`. Raises ValueError for an unknown backend.

    >>> usual_precision("onnx", "cpu"), usual_precision("torch", "cpu"), usual_precision("torch", "cuda")
    ('int8', 'fp32', 'fp16')
    """
    spec = spec_of(name)
    return spec.usual.get(device.partition(":")[0], spec.precisions[0])


@dataclass(frozen=True, slots=True)
class Form:
    """The backend and the precision that run a checkpoint."""

    backend: str
    precision: str
    reason: str
    """The reason for the choice, as a text for users."""


def form_for(
    names: Collection[str],
    device: str,
    *,
    backend: str | None = None,
    precision: str | None = None,
) -> Form:
    """The backend and precision that run a checkpoint with the files `names` on `device`; given values are kept.

    The backend is the default of the device, or another one if the checkpoint has no files for the default backend. For
    example, a decoder has only weights, for torch. The precision is the default of backend and device, or fp32 if the
    checkpoint has files for that but not for the default. If no backend can run the checkpoint, the result is the
    default, and opening it raises an error that names the missing files. The choice does not depend on measured times,
    so that it is the same on all machines.

    >>> form_for(["onnx/fp32/stage-0.onnx"], "cpu")
    Form(backend='onnx', precision='fp32', reason='it has no graphs in int8')
    >>> form_for(["model.safetensors"], "cpu")
    Form(backend='torch', precision='fp32', reason='it has nothing that onnx runs')

    Raises ValueError for an unknown backend, or a precision that the backend lacks.
    """

    def reads(kind: str, *precisions: str) -> bool:
        return any(spec_of(kind).files(names, each) for each in precisions)

    usual = usual_backend(device)
    kinds = (backend,) if backend else (usual, *BACKENDS)
    kind = next((each for each in kinds if reads(each, *spec_of(each).precisions)), kinds[0])
    chosen = usual_precision(kind, device)
    place = {"cpu": "a processor", "cuda": "a GPU"}.get(device.partition(":")[0], device)
    why = f"it has nothing that {usual} runs" if kind != usual else f"{kind} is the default on {place}"
    if precision:
        reason = "as set" if backend else f"the precision as set; {why}"
        return Form(kind, check_precision(kind, precision), reason)
    if not reads(kind, chosen) and reads(kind, "fp32"):
        return Form(kind, "fp32", f"it has no graphs in {chosen}")
    if backend:
        return Form(kind, chosen, "as set")
    if (device, kind, chosen) == ("cpu", "onnx", "int8"):  # docs/decisions/0008
        why = "the fastest form on the processors that were measured"
    return Form(kind, chosen, why)


def spec_of(name: str) -> BackendSpec:
    """The entry of the backend `name`. Raises ValueError, which lists the existing backends, for an unknown name."""
    if name not in BACKENDS:
        raise ValueError(f"there is no backend {name!r}, only {', '.join(BACKENDS)}")
    return BACKENDS[name]


def check_precision(name: str, precision: str) -> str:
    """Return `precision` if the backend `name` has it, else raise ValueError with a list of its precisions."""
    if precision not in (have := spec_of(name).precisions):
        raise ValueError(f"the backend {name} has no precision {precision!r}, only {', '.join(have)}")
    return precision


def precisions_help() -> str:
    """The precisions of every backend, for help texts and error messages.

    >>> precisions_help()
    'int8, fp32, fp16 with onnx; fp32, bf16, fp16 with torch'
    """
    return "; ".join(f"{', '.join(spec.precisions)} with {spec.name}" for spec in BACKENDS.values())
