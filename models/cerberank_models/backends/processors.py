"""Counts the processors that this process may use, by its affinity and its cgroup's quota instead of the host's cores.

The cgroup's limit of memory is read in the same way.

In a container that is limited to 2 of a host's 64 processors, 64 threads would use up the quota early in each period of
a tenth of a second, and would all be stopped until the next period.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

MEMBERSHIP = Path("/proc/self/cgroup")
MOUNT = Path("/sys/fs/cgroup")


def usable_processors() -> int:
    """The number of processors, at least 1. A quota of 2.5 counts as 2, because the others would wait for a third."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_quota()
    return affinity if quota is None else max(1, min(affinity, int(quota)))


def compute_threads(threads: int | None) -> int:
    """The number of threads to compute with: `threads`, or else OMP_NUM_THREADS, or else the usable processors.

    PyTorch and other numerical libraries read OMP_NUM_THREADS too. If it is a list, with a number for each level of
    nesting, the first number is used. Like in these libraries, any value but a positive number is ignored.
    """
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return threads or (int(first) if first.isascii() and first.isdigit() else 0) or usable_processors()


def cgroup_quota(membership: Path = MEMBERSHIP, mount: Path = MOUNT) -> float | None:
    """The number of processors that this process's cgroup and those above it allow; None if there is no limit."""
    limits = [quota for folder in _folders("cpu", membership, mount) if (quota := _quota(folder)) is not None]
    return min(limits, default=None)


def cgroup_memory(membership: Path = MEMBERSHIP, mount: Path = MOUNT) -> int | None:
    """The bytes of memory that this process's cgroup and those above it allow; None if there is no limit."""
    texts = [
        _read(folder / name).strip()
        for folder in _folders("memory", membership, mount)
        for name in ("memory.max", "memory.limit_in_bytes")  # versions 2 and 1
    ]
    limits = [int(text) for text in texts if text.isdigit() and int(text) < UNLIMITED]
    return min(limits, default=None)


UNLIMITED = 2**62
"""Version 1 states a number near 2^63 where there is no limit."""


def _folders(controller: str, membership: Path, mount: Path) -> Iterator[Path]:
    """The folders of a controller (versions 1 and 2), from the process's own up to the mount."""
    for line in _read(membership).splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            roots = [mount, mount / "unified"]
        elif controller in controllers.split(","):
            roots = [mount / controllers, mount / controller]
        else:
            continue
        # In a container the path may be the host's, which is not mounted. The mount is then the process's own folder.
        parts = [part for part in Path(path).parts if part not in ("/", "..")]
        for root in roots:
            yield from (root.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1))


def _quota(folder: Path) -> float | None:
    words = _read(folder / "cpu.max").split()  # version 2: "200000 100000" or "max 100000"
    if not words:
        words = [*_read(folder / "cpu.cfs_quota_us").split(), *_read(folder / "cpu.cfs_period_us").split()]
    if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit() or words[1] == "0":
        return None  # no file, "max", or -1 in version 1
    return int(words[0]) / int(words[1])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
