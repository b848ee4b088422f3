from __future__ import annotations

import os
from pathlib import Path

import pytest

from cerberank_benchmarks.neighbours import ProcessorTime, problems, processor_time

TICKS = os.sysconf("SC_CLK_TCK")
pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux' list of usable processors")


def test_what_others_take_makes_a_report_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    """On 2 processors for 100 s: 150 busy seconds of which 60 were others' are too many, 20 (a tenth) are not."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    before = ProcessorTime(wall=1000.0, busy=500.0, own=10.0)
    (problem,) = problems(before, ProcessorTime(wall=1100.0, busy=650.0, own=100.0))
    assert problem == "invalid: other programs took 0.6 of 2 processors during the measurement"
    assert problems(before, ProcessorTime(wall=1100.0, busy=650.0, own=140.0)) == []
    assert problems(before, ProcessorTime(wall=1100.0, busy=None, own=0.0)) == []


def test_busy_is_all_but_idle_and_waiting_on_the_usable_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """User, nice, system, irq, softirq and what the host stole; not the sum line, nor another processor."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1})
    stat = tmp_path / "stat"
    ticks = " ".join(str(number * TICKS) for number in (1, 2, 4, 1000, 2000, 8, 16, 32, 4000, 8000))
    stat.write_text(f"cpu  {ticks}\ncpu0 {ticks}\ncpu1 {ticks}\nintr 5\n")
    assert processor_time(stat).busy == 1 + 2 + 4 + 8 + 16 + 32
    assert processor_time(tmp_path / "absent").busy is None
