"""Background work that yields to live traffic.

Opening graphs, which releases the GIL, runs in a thread with a raised nice value; copying and hashing in a process with
one. A thread that holds the GIL must not be descheduled, because every other thread would wait for it: such work is cut
into pieces of some milliseconds, and each piece starts while no request is being answered.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

ResultT = TypeVar("ResultT")

LONGEST_WAIT = 0.1
"""Seconds after which a piece starts even though requests are being answered, so that a load completes under full
traffic."""
POLL_SECONDS = 0.001
NICENESS = 19
"""Added to the nice value; beside threads of the usual one the work gets a sixtieth of a processor."""


class LiveTraffic:
    """Tells background work when it may run beside the requests of a service. Thread-safe."""

    def __init__(self, busy: Callable[[], bool]) -> None:
        """`busy` tells whether a request is being answered; it is polled every millisecond."""
        self._busy = busy
        self.waited = 0.0
        """Seconds that `wait_until_idle` has taken."""

    def wait_until_idle(self) -> None:
        """Block until no request is being answered, but at most `LONGEST_WAIT`."""
        start = time.monotonic()
        while self._busy() and time.monotonic() < start + LONGEST_WAIT:
            time.sleep(POLL_SECONDS)
        self.waited += time.monotonic() - start


def at_low_priority(work: Callable[[], ResultT]) -> ResultT:
    """Run `work` in a thread of low priority, which ends with it; returns what it returns and raises what it raises.

    Threads that `work` starts inherit the nice value, for as long as they live. On other systems than Linux, where
    threads have none of their own, the priority is the usual one.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="low-priority", initializer=_be_nice) as pool:
        return pool.submit(work).result()


def _be_nice() -> None:
    if sys.platform.startswith("linux"):
        thread = threading.get_native_id()
        with suppress(OSError):  # a sandbox may forbid it
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS)
