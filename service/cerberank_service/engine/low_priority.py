"""Background work that yields to live traffic.

- Opening graphs releases the GIL, so it runs in a thread with a raised nice value.
- Copying and hashing files run in a process with a raised nice value.
- A thread that holds the GIL must not have a low priority, because all other threads would wait for it while it is
  descheduled. Such work is divided into pieces of some milliseconds, each of which starts while no request is answered.
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
"""Seconds after which a piece starts even though requests are being answered, so that loading a version completes
under full traffic."""
POLL_SECONDS = 0.001
NICENESS = 19
"""Increment of the nice value; beside threads with the usual value, the work gets a sixtieth of a processor."""


class LiveTraffic:
    """Lets background work wait until no request is being answered. Thread-safe."""

    def __init__(self, busy: Callable[[], bool]) -> None:
        """`busy` returns True while a request is being answered; it is polled every millisecond."""
        self._busy = busy
        self.waited = 0.0
        """Seconds that `wait_until_idle` has taken in all."""

    def wait_until_idle(self) -> None:
        """Block until no request is being answered, but at most `LONGEST_WAIT`."""
        start = time.monotonic()
        while self._busy() and time.monotonic() < start + LONGEST_WAIT:
            time.sleep(POLL_SECONDS)
        self.waited += time.monotonic() - start


def at_low_priority(work: Callable[[], ResultT]) -> ResultT:
    """Run `work` in a thread of low priority that ends afterwards; returns its result or raises its exception.

    Threads that `work` starts inherit the nice value for their whole life. On systems other than Linux, threads have
    no nice value of their own, and the work runs at the usual priority.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="low-priority", initializer=_be_nice) as pool:
        return pool.submit(work).result()


def _be_nice() -> None:
    if sys.platform.startswith("linux"):
        thread = threading.get_native_id()
        with suppress(OSError):  # a sandbox may forbid it
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS)
