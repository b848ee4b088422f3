from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cerberank_service.engine.low_priority import NICENESS, LiveTraffic, at_low_priority

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
def test_work_at_low_priority_is_nice_alone() -> None:
    """The work and the threads that it starts have a raised nice value, the caller has not."""

    def nice() -> list[int]:
        with ThreadPoolExecutor(1) as pool:
            return [_niceness(), pool.submit(_niceness).result()]

    before = _niceness()
    assert at_low_priority(nice) == [min(before + NICENESS, 19)] * 2
    assert _niceness() == before


def _niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_what_the_work_raises_is_raised() -> None:
    """The error keeps its type, which determines the reason of a rejection."""

    def fail() -> None:
        raise MemoryError("too big")

    with pytest.raises(MemoryError, match="too big"):
        at_low_priority(fail)
