"""What the C library does with freed memory: large arrays go back to the system at once, a version's rest when it has
gone, and a little is kept.
"""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGE_BYTES = 1024 * 1024
SPARE_BYTES = 4 * 1024 * 1024
"""Free memory at a heap's end. With glibc's own 128 KB every piece of a large body was asked of the system anew, which
then cleared it.
"""


def return_large_arrays() -> bool:
    """Ask glibc to map every array from a megabyte on by itself; False where that cannot be asked for.

    By itself it raises that threshold to the largest array freed so far, and then keeps hidden states in a heap that
    one late array pins: after 10,000 candidates with drops the process stayed 0.9 GB larger.
    """
    return _ask("mallopt", M_MMAP_THRESHOLD, LARGE_BYTES)


def keep_spare_memory() -> bool:
    """Ask glibc to keep `SPARE_BYTES` at a heap's end; False where that cannot be asked for."""
    return _ask("mallopt", M_TRIM_THRESHOLD, SPARE_BYTES)


def return_freed_memory() -> bool:
    """Give back what lies free between what is in use; False where that cannot be asked for. Takes some milliseconds.

    ONNX Runtime frees thousands of small pieces all over the heap, of which glibc gives back the top alone: the process
    grew by 20 to 40 MB with every version that came and went.
    """
    return _ask("malloc_trim", 0)


def _ask(function: str, *arguments: int) -> bool:
    """What glibc answers; False for another C library."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(getattr(ctypes.CDLL(None), function)(*arguments))
    except (OSError, AttributeError):
        return False
