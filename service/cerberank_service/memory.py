"""Configures glibc's allocator: large arrays are returned to the system when they are freed, the memory of a removed
version is returned after its removal, and a few megabytes are kept for reuse.
"""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGE_BYTES = 1024 * 1024
SPARE_BYTES = 4 * 1024 * 1024
"""Free memory kept at the top of the heap. With glibc's default of 128 KB every chunk of a large body would be
requested from the system again, which clears the pages each time.
"""


def return_large_arrays() -> bool:
    """Make glibc allocate every array of a megabyte or more with mmap; False where the C library is not glibc.

    By default glibc raises this threshold to the largest array freed so far. Hidden states then come from the heap,
    which a single live array keeps from shrinking: after a request of 10,000 candidates with drops the process stayed
    0.9 GB larger.
    """
    return _ask("mallopt", M_MMAP_THRESHOLD, LARGE_BYTES)


def keep_spare_memory() -> bool:
    """Make glibc keep `SPARE_BYTES` free at the top of the heap; False where the C library is not glibc."""
    return _ask("mallopt", M_TRIM_THRESHOLD, SPARE_BYTES)


def return_freed_memory() -> bool:
    """Return free pages inside the heap to the system; False where the C library is not glibc. Takes some milliseconds.

    ONNX Runtime frees thousands of small blocks all over the heap, of which glibc returns only those at the top:
    without this the process grew by 20 to 40 MB with every version that was loaded and unloaded.
    """
    return _ask("malloc_trim", 0)


def _ask(function: str, *arguments: int) -> bool:
    """The result of a glibc function as a bool; False for another C library."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(getattr(ctypes.CDLL(None), function)(*arguments))
    except (OSError, AttributeError):
        return False
