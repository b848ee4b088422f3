"""The memory and the load of a GPU, read before a backend is open as well as after; needs no torch to be imported.

PyTorch asks CUDA, which knows the device that this process sees. Without PyTorch, and for the load, NVIDIA's management
library (NVML) is asked through its official binding, the package nvidia-ml-py; without it nothing is known.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceMemory:
    """A GPU's memory in bytes."""

    total: int
    free: int
    """Bytes that this process can still take."""


COMMON_POOL = (0, 0)
"""The pool of PyTorch's allocator that belongs to no graph."""

MemoryReader = Callable[[str], DeviceMemory | None]
"""Reads the memory of a device (`cpu`, `cuda`, `cuda:1`); None on a processor, or where nothing can tell."""


def torch_memory(device: str) -> DeviceMemory | None:
    """The memory as PyTorch reads it; None for a device that is not a GPU, or when the GPU cannot be asked.

    Memory that PyTorch keeps unused is free to this process, but for what captured graphs own. It is counted, and not
    returned to the device, which would wait for the device and take the blocks of the versions that serve.
    Makes the process's CUDA context if there is none yet.
    """
    if not device.startswith("cuda"):
        return None
    import torch  # noqa: PLC0415 - a service that runs ONNX installs without torch

    try:
        free, total = torch.cuda.mem_get_info(device)
        number = torch.cuda.current_device() if (index := torch.device(device).index) is None else index
        free += sum(
            segment["total_size"] - segment["active_size"]
            for segment in torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
            if segment["device"] == number and tuple(segment["segment_pool_id"]) == COMMON_POOL
        )
    except (RuntimeError, AssertionError):  # no driver, a torch without CUDA, or a device that has failed
        return None
    return DeviceMemory(total=total, free=free)


def nvml_memory(device: str) -> DeviceMemory | None:
    """The memory as NVML reads it; None for a device that is not a GPU, or without NVML."""
    return _asked(device, _memory)


def nvml_utilisation(device: str) -> float | None:
    """Share of the last sampling period (a sixth of a second to a second) in which a kernel ran; None if unknown.

    A slice of a GPU (MIG) has none.
    """
    return _asked(device, lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100.0)


def _memory(nvml: ModuleType, handle: Any) -> DeviceMemory:
    found = nvml.nvmlDeviceGetMemoryInfo(handle)
    return DeviceMemory(total=int(found.total), free=int(found.free))


def _asked(device: str, question: Callable[[ModuleType, Any], Answer]) -> Answer | None:
    if not device.startswith("cuda"):
        return None
    try:
        import pynvml  # noqa: PLC0415 - the name of nvidia-ml-py's module; an optional dependency
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return question(pynvml, _handle(pynvml, int(device.partition(":")[2] or 0)))
    except pynvml.NVMLError:
        return None


def _handle(nvml: ModuleType, number: int) -> Any:
    """NVML's handle of the device that CUDA numbers `number`; NVML itself ignores `CUDA_VISIBLE_DEVICES`.

    GPUs of several kinds have the same numbers only with `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
    """
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    name = visible[number] if number < len(visible) else str(number)
    return nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else nvml.nvmlDeviceGetHandleByUUID(name)
