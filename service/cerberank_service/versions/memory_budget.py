"""The estimated memory of a version, the limit for all versions together, and a check of a GPU's free memory.

A version's memory is estimated from the sizes of its files. In addition, the free memory of a GPU is checked just
before a version is opened on it. After a version is unloaded, its memory is returned to the system.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping

from cerberank_models.backends.device_memory import DeviceMemory, return_unused_memory
from cerberank_models.backends.registry import spec_of
from cerberank_service.settings import Settings

MEMORY_PER_BYTE = 2
"""Bytes of memory for each byte of a file on a processor. ONNX Runtime keeps the weights and a packed copy of them:
cerberank-mini takes 66 MB for files of 32 MB."""
PROCESSOR_BYTES = 2 * 1024**3
"""Limit of the memory of all versions on a processor."""
DEVICE_SHARE = 0.9
"""Share of a GPU's memory that all versions may take; the rest is for the context and for fragmentation."""
WORKSPACE_BYTES = 2 * 1024**3
"""Memory of a version on a GPU in addition to its weights; the estimate was not verified on a GPU yet. It covers the
activations of the largest step that the warm-up tries, 65,536 tokens: two tensors of four times a width of 1,024 and
six of this width take 1.8 GiB in half precision. Waiting states have a limit of their own.
"""


FILES_PER_LIMIT = 2
"""The most bytes of all files of a version, for each byte of the limit of memory."""
FILES_PER_VERSION = 8
"""The most bytes of all files of a version, for each byte of its estimated memory, beside SMALL_FILES. A checkpoint
that is served in int8 may also hold graphs in fp32 and fp16, and weights: eleven times the files that are read, whose
estimate is twice their bytes."""
SMALL_FILES = 256 * 1024**2
"""Bytes of files that every version may have in addition."""
LIBRARY_BYTES = 1024**3
"""Memory of a process that tries a version, in addition to the version: libraries, and the activations of a batch.
PyTorch takes half of it."""
CONTAINER_SHARE = 0.9
"""Share of what is left of a container's memory that the process may take. The system kills the whole container beyond
it, and the process's memory is only read from time to time."""
UNEXPECTED_FACTOR = 2
"""A version counts with the memory that its trial took, and not with its estimate, if that is more than this multiple
of the estimate and UNEXPECTED_BYTES. Up to there the difference is activations and parts of libraries."""
UNEXPECTED_BYTES = 128 * 1024**2


class DeviceFullError(MemoryError):
    """A GPU has too little free memory for a version."""


def on_device(settings: Settings) -> bool:
    """True if versions are in a GPU's memory."""
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
    """The limit, in bytes, for all versions together; `memory` is the GPU's, None if unknown or on a processor."""
    if settings.model_memory_bytes:
        return settings.model_memory_bytes
    if not on_device(settings):
        return PROCESSOR_BYTES
    return sys.maxsize if memory is None else int(DEVICE_SHARE * memory.total)


def most_file_bytes(size: int, memory: int) -> int:
    """The most bytes of all files of a version of the estimated `size`, where all versions may take `memory`.

    >>> most_file_bytes(66_000_000, 1024**3), most_file_bytes(512 * 1024**2, 1024**3)
    (796435456, 2147483648)
    """
    return min(FILES_PER_LIMIT * memory, FILES_PER_VERSION * size + SMALL_FILES)


def most_trial_bytes(settings: Settings, size: int, room: int) -> int:
    """The most memory of a process that tries a version of the estimated `size`; `room` is free for versions.

    On a GPU `room` is the GPU's, and the process uses main memory: as much as the file and what opening makes of it.
    """
    return LIBRARY_BYTES + (MEMORY_PER_BYTE * size if on_device(settings) else room)


def spare_bytes(container: int | None, used: int) -> int:
    """The memory that a container with this limit has left for a trial beside the `used` bytes of this process.

    >>> spare_bytes(2_000_000, 1_000_000), spare_bytes(None, 1_000_000) == sys.maxsize
    (900000, True)
    """
    return sys.maxsize if container is None else int(CONTAINER_SHARE * max(0, container - used))


def counted_bytes(settings: Settings, size: int, taken: int) -> int:
    """The memory with which a version counts: the estimated `size`, or what its trial has `taken` if that is far more.

    >>> counted_bytes(Settings(), 66_000_000, 90_000_000), counted_bytes(Settings(), 66_000_000, 800_000_000)
    (66000000, 800000000)
    """
    unexpected = taken > UNEXPECTED_FACTOR * size + UNEXPECTED_BYTES
    return taken if unexpected and not on_device(settings) else size


def check_room(needed: int, memory: DeviceMemory | None) -> None:
    """Raises DeviceFullError if the GPU has fewer than `needed` free bytes; never if `memory` is None (unknown)."""
    if memory is not None and needed > memory.free:
        raise DeviceFullError(
            f"it needs about {_gigabytes(needed)} of the GPU's memory; {_gigabytes(memory.free)} of "
            f"{_gigabytes(memory.total)} are free"
        )


def _gigabytes(size: int) -> str:
    return f"{size / 1024**3:.1f} GiB"


def return_freed_memory(device: str) -> None:
    """Return what a closed version on `device` has freed: the GPU's memory, and the free pages of glibc's heaps.

    By itself glibc returns only the end of a heap, but a version's small blocks are between those of others. The call
    takes some milliseconds, in which other threads may have to wait to allocate memory.
    """
    return_unused_memory(device)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
