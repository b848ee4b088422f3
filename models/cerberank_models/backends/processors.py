"""The number of processors that this process may use, by its affinity and its cgroup's quota rather than the host's
cores.

In a container limited to 2 processors on a host of 64, 64 threads use up the quota of each period of a tenth of a
second early, and all of them are stopped until the next period.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

MEMBERSHIP = Path("/proc/self/cgroup")
MOUNT = Path("/sys/fs/cgroup")


def usable_processors() -> int:
    """The number, at least 1. A quota of 2.5 processors counts as 2: the others would wait for a third thread."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_quota()
    return affinity if quota is None else max(1, min(affinity, int(quota)))


def compute_threads(threads: int | None) -> int:
    """Threads to compute with: the given number, or else OMP_NUM_THREADS, or else the usable processors.

    OMP_NUM_THREADS is what PyTorch and other numerical libraries go by; the first number counts where it is a list
    (one for each level of nesting). Anything else than a positive number is ignored, as these libraries do.
    """
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return threads or (int(first) if first.isascii() and first.isdigit() else 0) or usable_processors()


def cgroup_quota(membership: Path = MEMBERSHIP, mount: Path = MOUNT) -> float | None:
    """Processors that this process's cgroup, or one above it, allows; None without a limit, or without cgroups."""
    limits = [quota for folder in _folders(membership, mount) if (quota := _quota(folder)) is not None]
    return min(limits, default=None)


def _folders(membership: Path, mount: Path) -> Iterator[Path]:
    """Folders of the cpu controller (versions 1 and 2), from the process's own up to the mount."""
    for line in _read(membership).splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            roots = [mount, mount / "unified"]
        elif "cpu" in controllers.split(","):
            roots = [mount / controllers, mount / "cpu"]
        else:
            continue
        # Inside a container the path may be the host's, which is not mounted: the mount then is the process's own.
        parts = [part for part in Path(path).parts if part not in ("/", "..")]
        for root in roots:
            yield from (root.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1))


def _quota(folder: Path) -> float | None:
    words = _read(folder / "cpu.max").split()  # version 2: "200000 100000" or "max 100000"
    if not words:
        words = [*_read(folder / "cpu.cfs_quota_us").split(), *_read(folder / "cpu.cfs_period_us").split()]
    if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit() or words[1] == "0":
        return None  # no file, "max", or version 1's -1
    return int(words[0]) / int(words[1])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
