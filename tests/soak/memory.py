"""The memory of a fleet's processes over their lifetimes: replicas are restarted, and each process begins anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

WARM_PUSHES = 2
"""Versions that a process loads until its memory is that of a process that follows a store."""


@dataclass(frozen=True, kw_only=True)
class Weight:
    """A process at one time."""

    replica: int
    pid: int
    pushes: int
    """Good versions that had been pushed, to all replicas."""
    megabytes: float


def growths(weights: Sequence[Weight]) -> dict[str, float]:
    """Last over first memory of each process, `replica/pid`, from the second push in its lifetime on.

    Weights are in the order of their times. Processes that were not weighed twice since then are left out.
    """
    found = {}
    by_process = sorted(weights, key=lambda each: (each.replica, each.pid))  # stable: times stay in order
    for (replica, pid), group in groupby(by_process, key=lambda each: (each.replica, each.pid)):
        lifetime = list(group)
        warm = [each for each in lifetime if each.pushes >= lifetime[0].pushes + WARM_PUSHES]
        if len(warm) > 1:
            found[f"{replica}/{pid}"] = warm[-1].megabytes / warm[0].megabytes
    return found
