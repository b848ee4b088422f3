"""A GPU's memory and load, read from a library that this test plays; real GPUs are not needed."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from tests.models.nvml import Nvml

from cerberank_models.backends.device_memory import DeviceMemory, nvml_memory, nvml_utilisation, torch_memory


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
    """What its allocator keeps unused is returned first; without CUDA, or on a failed device, nothing is known."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", {"cuda:1": (30, 70)}.__getitem__)
    emptied: list[bool] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    assert torch_memory("cuda:1") == DeviceMemory(total=70, free=30)
    assert emptied == [True]

    def fail(device: str) -> tuple[int, int]:
        raise RuntimeError(f"CUDA error: device-side assert triggered on {device}")

    monkeypatch.setattr(torch.cuda, "mem_get_info", fail)
    assert torch_memory("cuda") is None


def test_the_module_loads_no_library() -> None:
    """Neither torch nor NVML is imported until a device is asked."""
    script = (
        "import sys, cerberank_models.backends.device_memory\n"
        "print([name for name in ('torch', 'pynvml') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
