from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

import pytest

from cerberank_service.engine import low_priority
from cerberank_service.engine.low_priority import LiveTraffic, at_low_priority

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="priorities of threads are Linux'")


def test_a_piece_waits_while_somebody_is_answered() -> None:
    """And no longer: it begins at the first look that finds nobody."""
    looks = iter([True, True, False])
    LiveTraffic(lambda: next(looks)).wait_until_idle()
    assert next(looks, None) is None


def test_a_piece_begins_though_the_service_is_never_idle() -> None:
    """Else no push would arrive under a full load."""
    asked: list[int] = []
    LiveTraffic(lambda: asked.append(1) is None).wait_until_idle()
    assert len(asked) > 1


@linux
def test_work_at_low_priority_stands_back_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It and what it starts are of the idle class, the caller is not."""
    monkeypatch.setattr(low_priority, "IDLE_CLASS_SECONDS", 600.0)  # a busy machine lets idle threads wait

    def classes() -> list[int]:
        found: list[int] = []
        look: Callable[[], None] = lambda: found.append(os.sched_getscheduler(0))  # noqa: E731 - for two threads
        look()
        started = threading.Thread(target=look)
        started.start()
        started.join(30)
        return found

    assert at_low_priority(classes) == [os.SCHED_IDLE] * 2
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


@linux
def test_work_at_low_priority_that_takes_long_steps_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else processors that never rest would never do it."""
    monkeypatch.setattr(low_priority, "IDLE_CLASS_SECONDS", 0.01)
    if os.geteuid() != 0:
        pytest.skip("leaving the idle class takes a privilege")

    def wait() -> int:
        end = time.monotonic() + 30
        while os.sched_getscheduler(0) == os.SCHED_IDLE and time.monotonic() < end:
            time.sleep(0.01)
        return os.sched_getscheduler(0)

    assert at_low_priority(wait) == os.SCHED_OTHER


def test_what_the_work_raises_is_raised() -> None:
    """By its type: that is a rejection's reason."""

    def fail() -> None:
        raise MemoryError("too big")

    with pytest.raises(MemoryError, match="too big"):
        at_low_priority(fail)
