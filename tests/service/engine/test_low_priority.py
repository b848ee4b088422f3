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


def test_a_piece_waits_while_requests_are_answered() -> None:
    """The wait ends at the first poll at which no request is being answered."""
    looks = iter([True, True, False])
    LiveTraffic(lambda: next(looks)).wait_until_idle()
    assert next(looks, None) is None


def test_a_piece_starts_though_the_service_is_never_idle() -> None:
    """The wait is bounded, so that a load completes under full traffic."""
    asked: list[int] = []
    LiveTraffic(lambda: asked.append(1) is None).wait_until_idle()
    assert len(asked) > 1


@linux
def test_work_at_low_priority_is_in_the_idle_class_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work and the threads that it starts are in the idle class, the caller is not."""
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
def test_work_at_low_priority_that_takes_long_leaves_the_idle_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time limit the work leaves the idle class, so that it completes on busy processors."""
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
    """The error keeps its type, which determines the reason of a rejection."""

    def fail() -> None:
        raise MemoryError("too big")

    with pytest.raises(MemoryError, match="too big"):
        at_low_priority(fail)
