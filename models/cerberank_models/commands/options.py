"""Options that several commands share: the backend of a checkpoint, drop ratios, the reading of long texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token

from cerberank_models.backends.registry import form_for, precisions_help
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.drop import RatioSchedule
from cerberank_models.windows import Reading


def _ratios(type_: Any, tokens: Sequence[Token]) -> tuple[float, ...]:
    words = ",".join(token.value for token in tokens)
    try:
        return RatioSchedule(tuple(float(part) for part in words.split(","))).ratios
    except ValueError:
        raise ValueError(f"takes numbers of at least 0 and below 1, such as 0.3,0.3, not {words!r}") from None


Device = Annotated[str, Parameter(help="cpu, cuda, or cuda:N (default: a GPU if there is one).")]
"""The device that PyTorch computes on, or `auto`."""
Ratios = Annotated[tuple[float, ...], Parameter(converter=_ratios, n_tokens=1)]
"""Drop ratios: one number for all exits, or one number for each exit."""


def one_or_all(ratios: tuple[float, ...] | None) -> float | tuple[float, ...] | None:
    """The ratios as `drop.drop_ratios` takes them: a single ratio becomes a number, which applies to all exits."""
    return ratios[0] if ratios is not None and len(ratios) == 1 else ratios


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendChoice:
    """The backend, precision and device of a call, as arguments of `registry.open_backend`."""

    kind: str
    precision: str
    device: str


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BackendOptions:
    """The options of commands that run a checkpoint."""

    device: str = "auto"
    """cpu, cuda or cuda:N (default: a GPU if there is one)."""
    backend: str | None = None
    """onnx or torch (default: onnx on a processor, torch on a GPU and for decoders)."""
    precision: Annotated[
        str | None,
        Parameter(help=f"{precisions_help()} (default: onnx int8 on a processor, fp16 on a GPU; torch fp32 on cpu)."),
    ] = None

    def chosen(self, checkpoint: Checkpoint | None = None) -> BackendChoice:
        """The options, with the defaults of `form_for` for device and `checkpoint` where no value was given.

        Raises ValueError for an unknown backend, or a precision that the backend lacks.
        """
        device = chosen_device(self.device)
        files = () if checkpoint is None else checkpoint.manifest.files
        form = form_for(files, device, backend=self.backend, precision=self.precision)
        return BackendChoice(kind=form.backend, precision=form.precision, device=device)


OWN = BackendOptions()


def check_device(device: str, backend: str = "torch") -> None:
    """Raise ValueError, with the option's name, unless the backend can compute on the device (`cpu`, `cuda:1`).

    For ONNX Runtime, only the installation of the provider is checked. If it cannot start, opening a graph fails.
    """
    try:
        if backend == "onnx":
            from cerberank_models.backends.onnx_session import provider_of  # noqa: PLC0415 - an optional dependency

            provider_of(device)
        else:
            import torch  # noqa: PLC0415 - not needed for ONNX Runtime

            torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"--device {device} cannot be used: {str(error).partition(chr(10))[0]}") from error


def chosen_device(device: str) -> str:
    """The given `device`; for `auto`, the machine's first GPU that PyTorch can use, or else the processor."""
    if device != "auto":
        return device
    # Importing PyTorch takes a second, and is not needed without NVIDIA's driver.
    if not Path("/proc/driver/nvidia/version").exists():
        return "cpu"
    try:
        import torch  # noqa: PLC0415 - an environment for services may lack it
    except ModuleNotFoundError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


Windows = Annotated[
    Reading | None,
    Parameter(
        help="Texts that do not fit: the best or the mean score of their windows, or cut (default: the model's rule)."
    ),
]
