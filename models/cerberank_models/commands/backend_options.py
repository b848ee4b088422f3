"""The options of verbs that run a checkpoint: device, backend, precision, and the reading of long texts."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from cerberank_models.backends.registry import (
    BACKENDS,
    check_precision,
    precisions_help,
    usual_backend,
    usual_precision,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendOptions:
    """The arguments of `registry.open_backend`."""

    kind: str
    precision: str
    device: str


def add_backend_options(parser: argparse.ArgumentParser) -> None:
    """Add `--device`, `--backend` and `--precision`."""
    parser.add_argument("--device", default="cpu", help="cpu, cuda, or cuda:N (default: cpu)")
    parser.add_argument("--backend", choices=tuple(BACKENDS), help="default: onnx on cpu, torch on cuda")
    parser.add_argument(
        "--precision", help=f"{precisions_help()} (default: onnx int8 on cpu, fp16 on cuda; torch fp32 on cpu)"
    )


def backend_options(arguments: argparse.Namespace) -> BackendOptions:
    """What was chosen, with the device's usual backend and precision where nothing was.

    Raises ValueError for a precision that the backend lacks.
    """
    kind = arguments.backend or usual_backend(arguments.device)
    precision = arguments.precision or usual_precision(kind, arguments.device)
    return BackendOptions(kind=kind, precision=check_precision(kind, precision), device=arguments.device)


def add_windows_option(parser: argparse.ArgumentParser) -> None:
    """Add `--windows`, which is None where nobody chose."""
    parser.add_argument(
        "--windows",
        choices=("best", "mean", "off"),
        help="texts that do not fit are read in windows and have the best or the mean score of these, or are cut "
        "(default: best, as the service does)",
    )
