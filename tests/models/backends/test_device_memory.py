"""A GPU's memory and load, read from a library that this test plays; real GPUs are not needed."""

from __future__ import annotations

import sys

import pytest
import torch
from tests.models.nvml import Nvml

from cerberank_models.backends.device_memory import (
    DeviceMemory,
    allocator_lock,
    nvml_memory,
    nvml_utilisation,
    return_unused_memory,
    torch_memory,
)


@pytest.mark.parametrize(
    ("visible", "device", "number"),
    [(None, "cuda", 0), (None, "cuda:1", 1), ("2,3", "cuda:1", 3), ("GPU-5", "cuda", 5), ("", "cuda", 0)],
)
def test_the_device_is_the_one_that_cuda_means(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, device: str, number: int
) -> None:
    """`CUDA_VISIBLE_DEVICES` renumbers devices for CUDA, by numbers or by identifiers, and not for NVML."""
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert nvml_memory(device) == DeviceMemory(total=1000 + number, free=100 + number)
    assert nvml_utilisation(device) == (40 + number) / 100


def test_nothing_is_known_without_the_library_or_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """No binding, no driver, a device without that figure: None, never an error."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml_memory("cuda") is None
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(fails="init"))
    assert nvml_memory("cuda") is None
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(fails="utilisation"))
    assert nvml_memory("cuda") is not None
    assert nvml_utilisation("cuda") is None


def test_a_processor_is_never_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory has other limits."""
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    assert nvml_memory("cpu") is nvml_utilisation("cpu") is torch_memory("cpu") is None


def test_pytorch_reads_the_memory_of_the_device_that_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that its allocator keeps unused on that device counts as free, without being returned to the device.

    Only `return_unused_memory` returns it, never while another thread captures, and without an error of its own.

    What belongs to captured graphs does not count. Without CUDA, or on a failed device, nothing is known.
    """
    emptied: list[bool] = []
    segments = [
        {"device": 1, "segment_pool_id": (0, 0), "total_size": 20, "allocated_size": 13, "active_size": 15},
        {"device": 1, "segment_pool_id": (0, 0), "total_size": 2, "allocated_size": 0, "active_size": 0},
        {"device": 1, "segment_pool_id": (0, 3), "total_size": 8, "allocated_size": 1, "active_size": 1},
        {"device": 0, "segment_pool_id": (0, 0), "total_size": 4, "allocated_size": 1, "active_size": 1},
    ]
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(allocator_lock.locked()))
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", {"cuda:1": (30, 70), "cuda": (50, 70)}.__getitem__)
    assert torch_memory("cuda:1") == DeviceMemory(total=70, free=30 + 5 + 2)
    assert torch_memory("cuda") == DeviceMemory(total=70, free=50 + 3)
    assert emptied == []
    return_unused_memory("cpu")
    assert emptied == []
    return_unused_memory("cuda:1")
    assert emptied == [True]

    def fail(device: str = "cuda") -> tuple[int, int]:
        raise RuntimeError(f"CUDA error: device-side assert triggered on {device}")

    monkeypatch.setattr(torch.cuda, "mem_get_info", fail)
    assert torch_memory("cuda") is None
    monkeypatch.setattr(torch.cuda, "empty_cache", fail)
    return_unused_memory("cuda")
    assert not allocator_lock.locked()
