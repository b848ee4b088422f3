"""The versions that a memory holds: estimates by precision, the budget of a device, and a swap that does not fit."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.models.nvml import Nvml
from tests.service.fakes import FakeBackend
from tests.service.following import Follow, entry, served_by
from tests.service.observe import samples, wait_until
from tests.service.pushes import push

from cerberank_models.backends.device_memory import DeviceMemory
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_service.settings import Settings
from cerberank_service.versions.loading import Loaded
from cerberank_service.versions.memory_budget import (
    LIBRARY_BYTES,
    MEMORY_PER_BYTE,
    PROCESSOR_BYTES,
    WORKSPACE_BYTES,
    DeviceFullError,
    budget,
    check_room,
    most_trial_bytes,
    spare_bytes,
    version_bytes,
)

FRAGMENTS = """
import ctypes
from pathlib import Path
from cerberank_service.versions.memory_budget import return_freed_memory

def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20

library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
blocks = []
for number in range(2000):
    large, small = library.malloc(65536), library.malloc(64)  # the small ones stay, and split the heap
    ctypes.memset(large, 1, 65536)
    blocks.append(large)
for block in blocks:
    library.free(block)
before = resident()
return_freed_memory("cpu")
print(before - resident())
"""


def test_a_trial_may_take_what_the_other_versions_leave_and_the_container_holds() -> None:
    """Main memory in any case: a GPU's memory has no room for a second copy."""
    cpu, gpu = Settings(), Settings(device="cuda")
    assert most_trial_bytes(cpu, GIB // 8, GIB // 2) == LIBRARY_BYTES + GIB // 2
    assert most_trial_bytes(gpu, 3 * GIB, 70 * GIB) == LIBRARY_BYTES + 6 * GIB
    assert [spare_bytes(2 * GIB, GIB), spare_bytes(GIB, 2 * GIB)] == [int(0.9 * GIB), 0]


FILES = {"model.safetensors": 1000, "onnx/fp16/stage-0.onnx": 500, "onnx/int8/stage-0.onnx": 250}
GIB = 1024**3


@pytest.mark.parametrize(
    ("backend", "precision", "device", "size"),
    [
        ("torch", "fp32", "cpu", 1000 * MEMORY_PER_BYTE),
        ("torch", "fp16", "cpu", 1000 * MEMORY_PER_BYTE),
        ("onnx", "int8", "cpu", 250 * MEMORY_PER_BYTE),
        ("torch", "fp32", "cuda", 1000 + WORKSPACE_BYTES),
        ("torch", "fp16", "cuda:1", 500 + WORKSPACE_BYTES),
        ("torch", "bf16", "cuda", 500 + WORKSPACE_BYTES),
        ("onnx", "fp16", "cuda", 500 + WORKSPACE_BYTES),
    ],
)
def test_a_version_takes_its_weights_in_the_precision_in_which_it_is_served(
    backend: str, precision: str, device: str, size: int
) -> None:
    """On a GPU half of an fp32 file in half precision, and the workspace; graphs are in their precision already."""
    settings = Settings(backend=backend, precision=precision, device=device)
    assert version_bytes(settings, FILES) == size


@pytest.mark.parametrize(("backend", "precision", "size"), [("torch", "fp32", 300), ("onnx", "int8", 70)])
def test_a_first_stage_is_counted_in_its_own_folder(backend: str, precision: str, size: int) -> None:
    """Its weights, or its graph in the same precision, and not its tokenizer."""
    files = {
        "first-stage/model.safetensors": 300,
        "first-stage/onnx/int8/encoder.onnx": 70,
        "first-stage/onnx/fp32/encoder.onnx": 290,
        "first-stage/tokenizer.json": 5,
    }
    settings = Settings(backend=backend, precision=precision)
    together, alone = (version_bytes(settings, each) for each in (FILES | files, FILES))
    assert together - alone == MEMORY_PER_BYTE * size


@pytest.mark.parametrize(
    ("settings", "memory", "most"),
    [
        ({}, None, PROCESSOR_BYTES),
        ({"model_memory_bytes": 5}, None, 5),
        ({"device": "cuda"}, DeviceMemory(total=1000, free=1), 900),
        ({"device": "cuda", "model_memory_bytes": 5}, DeviceMemory(total=1000, free=1), 5),
        ({"device": "cuda"}, None, sys.maxsize),
    ],
)
def test_the_budget_is_what_was_set_or_follows_the_device(
    settings: dict[str, object], memory: DeviceMemory | None, most: int
) -> None:
    """2 GiB on a processor, 90 % of a GPU; a GPU whose memory nobody can read has no budget."""
    assert budget(Settings.model_validate(settings), memory) == most


def test_room_is_checked_by_what_is_free() -> None:
    """The message has the figures; where nothing is known nothing is refused."""
    check_room(10 * GIB, None)
    check_room(10 * GIB, DeviceMemory(total=20 * GIB, free=10 * GIB))
    with pytest.raises(DeviceFullError, match=r"about 10\.0 GiB .* 9\.0 GiB of 20\.0 GiB are free"):
        check_room(10 * GIB, DeviceMemory(total=20 * GIB, free=9 * GIB))


def test_a_swap_that_does_not_fit_the_gpu_is_refused(
    follow: Follow, store: FolderStore, made: Callable[..., Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has taken its memory: nothing of the new version is opened, and the other one goes on."""
    gpu = Nvml(free=70 * GIB, total=80 * GIB)
    monkeypatch.setitem(sys.modules, "pynvml", gpu)
    opened: list[str] = []

    def load(checkpoint: Checkpoint, settings: Settings) -> Loaded:
        opened.append(checkpoint.manifest.version)
        if len(opened) == 1:
            gpu.free = 1 * GIB
        return Loaded(checkpoint, FakeBackend(checkpoint.config))

    push(store, made("1"), "stable")
    client = follow(load, device="cuda", backend="onnx", precision="int8")
    wait_until(lambda: served_by(client) == "1")
    push(store, made("2"), "canary")
    wait_until(lambda: (entry(client, "2").get("reason") or "").startswith("too_big: "))
    assert entry(client, "2")["state"] == "failed"
    assert "1.0 GiB of 80.0 GiB are free" in entry(client, "2")["reason"]
    assert opened == ["1"]
    assert served_by(client) == "1"
    assert samples(client)["cerberank_rejected_versions_total{model=fake-ranker,reason=too_big,version=2}"] == 1
    assert client.get("/health/ready").status_code == 200


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such call")
def test_memory_between_blocks_that_stay_is_returned() -> None:
    """Most of 125 MB that were freed between small blocks leaves the process."""
    done = subprocess.run([sys.executable, "-c", FRAGMENTS], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 60
