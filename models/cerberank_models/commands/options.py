"""Types of options that several commands have: lists, the backend of a checkpoint, the reading of long texts.

A list of numbers or names is one value with commas (`--exits 2,4`); paths and data sets are given once each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token

from cerberank_models.backends.registry import check_precision, precisions_help, usual_backend, usual_precision
from cerberank_models.drop import RatioSchedule
from cerberank_models.windows import Reading


def listed(kind: Callable[[str], Any], example: str) -> Parameter:
    """The parameter of a tuple whose items stand between commas; an empty value is an empty tuple."""

    def convert(type_: Any, tokens: Sequence[Token]) -> tuple[Any, ...]:
        try:
            return tuple(kind(part) for token in tokens for part in token.value.split(",") if part)
        except ValueError:
            given = ",".join(token.value for token in tokens)
            raise ValueError(f"takes values with commas between them, such as {example}, not {given!r}") from None

    return Parameter(converter=convert, n_tokens=1)


def _ratios(type_: Any, tokens: Sequence[Token]) -> tuple[float, ...]:
    given = ",".join(token.value for token in tokens)
    try:
        return RatioSchedule(tuple(float(part) for part in given.split(","))).ratios
    except ValueError:
        raise ValueError(f"takes numbers of at least 0 and below 1, such as 0.3,0.3, not {given!r}") from None


Integers = Annotated[tuple[int, ...], listed(int, "2,4")]
Numbers = Annotated[tuple[float, ...], listed(float, "0.1,0.5")]
Names = Annotated[tuple[str, ...], listed(str, "fp32,int8")]
Ratios = Annotated[tuple[float, ...], Parameter(converter=_ratios, n_tokens=1)]
"""Drop ratios: one number for all exits, or one for each."""


def one_or_all(ratios: tuple[float, ...] | None) -> float | tuple[float, ...] | None:
    """A single ratio stands for all exits."""
    return ratios[0] if ratios is not None and len(ratios) == 1 else ratios


@dataclass(frozen=True, kw_only=True, slots=True)
class Backend:
    """The arguments of `registry.open_backend`."""

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
    """onnx or torch (default: onnx on a processor, torch on a GPU)."""
    precision: Annotated[
        str | None,
        Parameter(help=f"{precisions_help()} (default: onnx int8 on a processor, fp16 on a GPU; torch fp32 on cpu)."),
    ] = None

    def chosen(self) -> Backend:
        """The backend with the device's usual choices where nothing was chosen.

        Raises ValueError for an unknown backend, or a precision that it lacks.
        """
        device = chosen_device(self.device)
        kind = self.backend or usual_backend(device)
        return Backend(
            kind=kind, precision=check_precision(kind, self.precision or usual_precision(kind, device)), device=device
        )


OWN = BackendOptions()
"""The usual backend of this machine."""


def chosen_device(device: str) -> str:
    """`device`, or for `auto` the machine's first GPU that PyTorch can use, else the processor."""
    if device != "auto":
        return device
    # Asking PyTorch takes a second; without NVIDIA's driver there is nothing to ask for.
    if not Path("/proc/driver/nvidia/version").exists():
        return "cpu"
    try:
        import torch  # noqa: PLC0415 - a service's environment has none
    except ModuleNotFoundError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


Windows = Annotated[
    Reading | None,
    Parameter(
        help="Texts that do not fit: the best or the mean score of their windows, or cut (default: best, as served)."
    ),
]
