"""The memory that a version takes, that all versions may take, and that a GPU has left for one more.

Estimates come from the sizes of files; what really happens to the device is seen just before a version is opened on it.
What an unloaded one took goes back to the system.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping

from cerberank_models.backends.device_memory import DeviceMemory
from cerberank_models.backends.registry import spec_of
from cerberank_service.settings import Settings

MEMORY_PER_BYTE = 2
"""ONNX Runtime keeps the weights and a packed copy: cerberank-mini takes 66 MB for files of 32 MB."""
PROCESSOR_BYTES = 2 * 1024**3
"""Memory that all versions may take on a processor."""
DEVICE_SHARE = 0.9
"""Share of a GPU's memory that all versions may take; the rest is for the context and for fragmentation."""
WORKSPACE_BYTES = 2 * 1024**3
"""Memory that a version takes on a GPU beside its weights: the activations of a step of 65,536 tokens (400 MB at four
times a width of 768 in half precision, some of them at a time), libraries' workspaces and captured graphs. An estimate
that no GPU has confirmed yet. Waiting states have a bound of their own.
"""


class DeviceFullError(MemoryError):
    """A GPU has too little free memory for a version."""


def on_device(settings: Settings) -> bool:
    """True if versions lie in a GPU's memory."""
    return settings.device.partition(":")[0] != "cpu"


def version_bytes(settings: Settings, files: Mapping[str, int]) -> int:
    """The estimated memory of a version whose `files` have these sizes.

    Raises ValueError as `Settings.form` does.
    """
    form = settings.form(files)
    spec = spec_of(form.backend)
    read = sum(files[name] for name in spec.files(files, form.precision))
    if not on_device(settings):
        return MEMORY_PER_BYTE * read
    return int(spec.weight_share.get(form.precision, 1.0) * read) + WORKSPACE_BYTES


def budget(settings: Settings, memory: DeviceMemory | None) -> int:
    """Bytes that all versions together may take; `memory` is the GPU's, None on a processor or when it is unknown."""
    if settings.model_memory_bytes:
        return settings.model_memory_bytes
    if not on_device(settings):
        return PROCESSOR_BYTES
    return sys.maxsize if memory is None else int(DEVICE_SHARE * memory.total)


def check_room(needed: int, memory: DeviceMemory | None) -> None:
    """Raises DeviceFullError when the GPU has fewer than `needed` free bytes; never where `memory` is unknown."""
    if memory is not None and needed > memory.free:
        raise DeviceFullError(
            f"it needs about {_gigabytes(needed)} of the GPU's memory; {_gigabytes(memory.free)} of "
            f"{_gigabytes(memory.total)} are free"
        )


def _gigabytes(size: int) -> str:
    return f"{size / 1024**3:.1f} GiB"


def return_freed_memory() -> None:
    """Ask glibc to return the free pages of its heaps; other C libraries are left alone.

    glibc returns the end of a heap by itself, and a version's small blocks lie between those of others. It takes some
    milliseconds, in which other threads may wait for memory.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
