"""Checks that other programs did not use the processors during a measurement, because the figures would be wrong."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

STAT = Path("/proc/stat")
BUSY = (0, 1, 2, 5, 6, 7)
"""Places of user, nice, system, irq, softirq and steal in a processor's line; idle time and disk waits do not count."""
MOST = 0.1
"""Share of the processors that other programs may take; the noise of the figures is about as large."""


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Times at one moment, in seconds."""

    wall: float
    busy: float | None
    """Busy time of the usable processors, by all programs and the host; None if the system does not report it."""
    own: float
    """Processor time of this process and its ended children."""


def processor_time(stat: Path = STAT) -> ProcessorTime:
    """The current times."""
    return ProcessorTime(time.monotonic(), _busy(stat), sum(os.times()[:4]))


def problems(before: ProcessorTime, after: ProcessorTime) -> list[str]:
    """A list with one sentence if other programs took more than `MOST` of the processors; otherwise empty.

    All measured child processes must have ended before `after`.
    """
    if before.busy is None or after.busy is None:
        return []
    processors = len(_usable())
    taken = (after.busy - before.busy - after.own + before.own) / (after.wall - before.wall)
    if taken <= MOST * processors:
        return []
    return [f"invalid: other programs took {taken:.1f} of {processors} processors during the measurement"]


def _busy(stat: Path) -> float | None:
    try:
        lines = [line.split() for line in stat.read_text(encoding="ascii").splitlines()]
    except OSError:
        return None
    names = {f"cpu{number}" for number in _usable()}
    processors = [[int(ticks) for ticks in words[1:]] for words in lines if words and words[0] in names]
    busy = sum(ticks[place] for ticks in processors for place in BUSY)
    return busy / os.sysconf("SC_CLK_TCK") if processors else None


def _usable() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
