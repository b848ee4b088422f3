"""Describes the machine of a measurement: processor, load, versions and date, but not its name."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cerberank_models.backends.processors import usable_processors

PACKAGES = (
    "torch",
    "triton",
    "onnxruntime",
    "sentence-transformers",
    "transformers",
    "tokenizers",
    "numpy",
)


def describe_machine() -> dict[str, str]:
    """The facts that are needed to judge the figures; the load of the last minute shows whether it was busy."""
    described = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": str(usable_processors()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
    }
    return described | {name: installed for name in PACKAGES if (installed := _version(name))}


def multiplies_bf16() -> bool:
    """True if the processor has instructions for products in bf16; without them, bf16 is emulated and very slow."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def describe_gpu(device: str) -> dict[str, str]:
    """The GPU, its driver and PyTorch's CUDA, for a device such as `cuda:1`; empty for a processor."""
    if not device.startswith("cuda"):
        return {}
    import torch  # noqa: PLC0415 - not needed by benchmarks of ONNX

    properties = torch.cuda.get_device_properties(device)
    return {
        "gpu": properties.name,
        "gpus": str(torch.cuda.device_count()),
        "gpu memory": f"{properties.total_memory / 2**30:.1f} GiB",
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": str(properties.multi_processor_count),
        "cuda": str(torch.version.cuda),
        "driver": _nvidia_smi(device, "driver_version") or "unknown",
        "clocks": gpu_clocks(device) or "unknown",
    }


def gpu_clocks(device: str) -> str | None:
    """Current and maximum clocks, power and temperature; None if nvidia-smi is missing or does not answer."""
    fields = "clocks.sm,clocks.max.sm,clocks.mem,clocks.max.mem,power.draw,power.limit,temperature.gpu"
    values = _nvidia_smi(device, fields) if device.startswith("cuda") else None
    if values is None:
        return None
    sm, most_sm, memory, most_memory, power, limit, heat = values.split(", ")
    return f"SM {sm} of {most_sm}, memory {memory} of {most_memory}, {power} of {limit}, {heat} C"


def _nvidia_smi(device: str, fields: str) -> str | None:
    if (program := shutil.which("nvidia-smi")) is None:
        return None
    index = device.partition(":")[2] or "0"
    command = [program, f"--id={index}", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    described = {name.strip(): value.strip() for name, value in fields.items()}
    flags = ("avx2", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
    wide = [flag for flag in flags if flag in described.get("flags", "").split()]
    return " ".join([described.get("model name", platform.machine()), *wide])


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
