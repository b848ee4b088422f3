"""Describes the machine of a measurement: processor, load, versions, date; not the machine's name."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cerberank_models.backends.processors import usable_processors

PACKAGES = ("torch", "onnxruntime", "sentence-transformers", "transformers", "tokenizers", "numpy")


def describe_machine() -> dict[str, str]:
    """The facts that a reader needs to judge the figures; the load of the last minute shows a busy machine."""
    described = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": str(usable_processors()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
    }
    return described | {name: found for name in PACKAGES if (found := _version(name))}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    known = {name.strip(): value.strip() for name, value in fields.items()}
    wide = [
        flag for flag in ("avx2", "avx512_vnni", "avx512_bf16", "amx_int8") if flag in known.get("flags", "").split()
    ]
    return " ".join([known.get("model name", platform.machine()), *wide])


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
