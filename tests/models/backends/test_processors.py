from __future__ import annotations

import os
from pathlib import Path

import pytest

from cerberank_models.backends import processors
from cerberank_models.backends.processors import cgroup_memory, cgroup_quota, compute_threads, usable_processors


def machine(folder: Path, membership: str, files: dict[str, str]) -> tuple[Path, Path]:
    """A `/proc/self/cgroup` and a cgroup mount with these files."""
    (folder / "cgroup").write_text(membership)
    for name, content in files.items():
        path = folder / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder / "cgroup", folder / "mount"


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "250000 100000\n"}, 2.5),
        ("0::/a/b\n", {"a/cpu.max": "150000 100000\n", "a/b/cpu.max": "max 100000\n"}, 1.5),
        ("0::/a/b\n", {"a/cpu.max": "100000 100000\n", "a/b/cpu.max": "400000 100000\n"}, 1.0),
        ("0::/../host/path\n", {"cpu.max": "300000 100000\n"}, 3.0),
        ("0::/\n", {}, None),
        ("0::/a\n", {"a/cpu.max": "max 100000\n"}, None),
        (
            "4:memory:/m\n3:cpu,cpuacct:/d\n0::/\n",
            {"cpu,cpuacct/d/cpu.cfs_quota_us": "50000\n", "cpu,cpuacct/d/cpu.cfs_period_us": "100000\n"},
            0.5,
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "800000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8.0),
        ("1:cpuset:/\n", {"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
    ],
)
def test_the_quota_is_read_as_the_kernel_writes_it(
    tmp_path: Path, membership: str, files: dict[str, str], quota: float | None
) -> None:
    """Both cgroup versions, the tightest parent group, unlimited groups and host paths in a container are read."""
    assert cgroup_quota(*machine(tmp_path, membership, files)) == quota


@pytest.mark.parametrize(
    ("membership", "files", "limit"),
    [
        ("0::/a/b\n", {"a/memory.max": "1000\n", "a/b/memory.max": "2000\n"}, 1000),
        ("0::/a\n", {"a/memory.max": "max\n"}, None),
        ("0::/../host/path\n", {"memory.max": "3000\n"}, 3000),
        ("4:memory:/m\n3:cpu:/d\n0::/\n", {"memory/m/memory.limit_in_bytes": "4000\n"}, 4000),
        ("4:memory:/m\n", {"memory/m/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ("3:cpu:/m\n", {"memory/m/memory.limit_in_bytes": "4000\n"}, None),
    ],
)
def test_the_limit_of_memory_is_read_as_the_kernel_writes_it(
    tmp_path: Path, membership: str, files: dict[str, str], limit: int | None
) -> None:
    """In both cgroup versions, as the quota is."""
    assert cgroup_memory(*machine(tmp_path, membership, files)) == limit


def test_without_cgroups_there_is_no_quota(tmp_path: Path) -> None:
    """On a system without the cgroup files there is no quota, and no limit of memory."""
    assert cgroup_quota(tmp_path / "nothing", tmp_path / "nowhere") is None
    assert cgroup_memory(tmp_path / "nothing", tmp_path / "nowhere") is None


@pytest.mark.parametrize(("quota", "expected"), [(None, 8), (0.5, 1), (2.5, 2), (100.0, 8)])
def test_the_smaller_of_affinity_and_quota_counts(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, expected: int
) -> None:
    """The result is the smaller of affinity and quota, in whole processors, at least one."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(processors, "cgroup_quota", lambda: quota)
    assert usable_processors() == expected


@pytest.mark.parametrize(
    ("threads", "environment", "expected"),
    [(None, None, 7), (0, "", 7), (None, "3", 3), (2, "3", 2), (None, " 4,2", 4), (None, "0", 7), (None, "many", 7)],
)
def test_threads_are_those_of_the_environment_unless_stated(
    threads: int | None, environment: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "usable_processors", lambda: 7)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if environment is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", environment)
    assert compute_threads(threads) == expected
