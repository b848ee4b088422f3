"""Reads the memory and the utilisation of a GPU, before or after a backend is opened. Can be imported without torch.

`torch_memory` asks CUDA through PyTorch. The other functions ask NVIDIA's management library (NVML) through its
official Python package nvidia-ml-py, and return None if that is not installed.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceMemory:
    """A GPU's memory in bytes."""

    total: int
    free: int
    """The bytes that this process can still allocate."""


COMMON_POOL = (0, 0)
"""The id of the pool of PyTorch's allocator for memory that does not belong to a CUDA graph."""

allocator_lock = threading.Lock()
"""Held while CUDA graphs are captured, and while memory is returned. PyTorch's allocator refuses to return memory while
any thread captures, and a capture switches off the process's garbage collector."""

MemoryReader = Callable[[str], DeviceMemory | None]
"""Reads the memory of a device (`cpu`, `cuda`, `cuda:1`); None for a processor, or if it cannot be read."""


def torch_memory(device: str) -> DeviceMemory | None:
    """The memory as PyTorch reads it; None for a device that is not a GPU, or if the GPU cannot be read.

    Unused memory that PyTorch caches is counted as free, except in the pools of captured graphs. It is not returned to
    the device for this, because that would wait for the device and take cached blocks from versions that serve
    requests. Creates the process's CUDA context if there is none yet.
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
    except (RuntimeError, AssertionError):  # no driver, a torch without CUDA, or a failed device
        return None
    return DeviceMemory(total=total, free=free)


def return_unused_memory(device: str) -> None:
    """Return the memory to a GPU that PyTorch's allocator caches, if PyTorch is loaded; else do nothing.

    Cached blocks belong to the stream that freed them. Those of a closed backend, whose stream no other backend uses,
    would otherwise stay allocated until the GPU is full. The call waits while another thread captures CUDA graphs. It
    does not report a failed device, because every later step on it fails.
    """
    if not device.startswith("cuda") or "torch" not in sys.modules:
        return
    import torch  # noqa: PLC0415 - as above

    with allocator_lock, suppress(RuntimeError):
        gc.collect()  # a backend may be in a reference cycle, and a graph's memory is free only without the graph
        torch.cuda.empty_cache()


def nvml_memory(device: str) -> DeviceMemory | None:
    """The memory as NVML reads it; None for a device that is not a GPU, or if NVML cannot be used."""
    return _nvml_answer(device, _memory)


def nvml_utilisation(device: str) -> float | None:
    """The share of the last sampling period (1/6 to 1 second) in which a kernel ran; None if unknown.

    It is always unknown for a slice of a GPU (MIG).
    """
    return _nvml_answer(device, lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100.0)


def _memory(nvml: ModuleType, handle: Any) -> DeviceMemory:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return DeviceMemory(total=int(memory.total), free=int(memory.free))


def _nvml_answer(device: str, question: Callable[[ModuleType, Any], Answer]) -> Answer | None:
    if not device.startswith("cuda"):
        return None
    try:
        import pynvml  # noqa: PLC0415 - the module of nvidia-ml-py, an optional dependency
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return question(pynvml, _handle(pynvml, int(device.partition(":")[2] or 0)))
    except pynvml.NVMLError:
        return None


def _handle(nvml: ModuleType, number: int) -> Any:
    """NVML's handle of the device with CUDA's number `number`, by `CUDA_VISIBLE_DEVICES`, which NVML itself ignores.

    If the machine has GPUs of several kinds, the numbers agree only with `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
    """
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    name = visible[number] if number < len(visible) else str(number)
    return nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else nvml.nvmlDeviceGetHandleByUUID(name)
