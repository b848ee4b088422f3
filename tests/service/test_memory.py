from __future__ import annotations

import subprocess
import sys

import pytest

from cerberank_service.memory import keep_spare_memory, return_large_arrays

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's own behaviour")

PROGRAM = """
import re, sys
from pathlib import Path
import numpy as np
from cerberank_service.memory import return_large_arrays

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024

assert sys.argv[1] == "no" or return_large_arrays()
before = resident()
del_first = np.ones(12_000_000, dtype=np.int8)
del del_first  # from now on glibc would keep arrays of this size in its heap
held = [np.ones(11_000_000, dtype=np.int8) for _ in range(40)]
last = held[-1]
del held
print(resident() - before)
"""


def test_memory_of_freed_states_goes_back_though_a_late_one_stays() -> None:
    """440 MB come and go, 11 stay; without the call about all of it would."""
    if not return_large_arrays():
        pytest.skip("another C library")
    grown = {
        asked: int(subprocess.run([sys.executable, "-c", PROGRAM, asked], check=True, capture_output=True).stdout)
        for asked in ("yes", "no")
    }
    assert grown["yes"] < 40
    assert grown["no"] > 300


PIECES = """
import ctypes, re
from pathlib import Path
from cerberank_service.memory import return_freed_memory

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024

c = ctypes.CDLL(None)
c.malloc.restype, c.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
pieces = [c.malloc(20_000) for _ in range(10_000)]
for piece in pieces:
    ctypes.memset(piece, 1, 20_000)
full = resident()
for piece in pieces[:-1]:
    c.free(piece)
kept = resident()
return_freed_memory()
print(full, kept, resident())
"""


def test_what_lies_free_under_something_in_use_goes_back() -> None:
    """200 MB of small pieces are freed but for the last; glibc keeps them until it is asked."""
    if not return_large_arrays():
        pytest.skip("another C library")
    shown = subprocess.run([sys.executable, "-c", PIECES], check=True, capture_output=True, text=True).stdout
    full, kept, after = map(int, shown.split())
    assert full - kept < 40
    assert full - after > 150


SPARE = """
import resource, sys
from cerberank_service.memory import keep_spare_memory, return_large_arrays

return_large_arrays()
assert sys.argv[1] == "no" or keep_spare_memory()
piece = b"a" * 256_000
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(1000):
    piece + b"b"
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_pieces_of_a_body_are_not_asked_of_the_system_one_by_one() -> None:
    """A piece of 256 KB has 63 pages, which the system would clear anew each time."""
    if not keep_spare_memory():
        pytest.skip("another C library")
    faults = {
        asked: int(subprocess.run([sys.executable, "-c", SPARE, asked], check=True, capture_output=True).stdout)
        for asked in ("yes", "no")
    }
    assert faults["yes"] < 1000
    assert faults["no"] > 10_000
