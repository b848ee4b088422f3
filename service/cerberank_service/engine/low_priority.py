"""Background work that yields to live traffic.

Work that releases the GIL (copying, hashing, opening graphs) runs in a thread with the scheduling class SCHED_IDLE. A
thread that holds the GIL must not be descheduled, because every other thread would wait for it: such work is cut into
pieces of some milliseconds, and each piece starts while no request is being answered.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

ResultT = TypeVar("ResultT")

LONGEST_WAIT = 0.1
"""Seconds after which a piece starts even though requests are being answered, so that a load completes under full
traffic."""
POLL_SECONDS = 0.001
IDLE_CLASS_SECONDS = 5.0
"""Seconds after which the work is moved from the idle class to the normal one, for machines that are never idle.
Leaving the idle class needs CAP_SYS_NICE or RLIMIT_NICE, which containers seldom have. Without them the work stays in
the idle class, where it still progresses beside the service's own load (docs/reliability.md, Limits).
"""


class LiveTraffic:
    """Tells background work when it may run beside the requests of a service. Thread-safe."""

    def __init__(self, busy: Callable[[], bool]) -> None:
        """`busy` tells whether a request is being answered; it is polled every millisecond."""
        self._busy = busy

    def wait_until_idle(self) -> None:
        """Block until no request is being answered, but at most `LONGEST_WAIT`."""
        end = time.monotonic() + LONGEST_WAIT
        while self._busy() and time.monotonic() < end:
            time.sleep(POLL_SECONDS)


def at_low_priority(work: Callable[[], ResultT]) -> ResultT:
    """Run `work` in a thread of low priority; returns what it returns and raises what it raises.

    On Linux the thread is in the scheduling class SCHED_IDLE for `IDLE_CLASS_SECONDS`. Niceness is not enough: a waking
    thread preempts one of the idle class at once, but not a nice one. Threads and processes that `work` starts inherit
    the class for as long as they live. On other systems the thread has normal priority.
    """
    future: Future[ResultT] = Future()

    def run() -> None:
        _set_class(0, "SCHED_IDLE")
        try:
            future.set_result(work())
        except BaseException as error:  # raised again in the caller's thread
            future.set_exception(error)

    thread = threading.Thread(target=run, name="low-priority", daemon=True)
    thread.start()
    end_of_idle = threading.Timer(IDLE_CLASS_SECONDS, _set_class, (thread.native_id, "SCHED_OTHER"))
    end_of_idle.start()  # in the calling thread, so that the timer's thread does not inherit the idle class
    try:
        return future.result()
    finally:
        end_of_idle.cancel()
        end_of_idle.join()  # the system may give the thread's id to another thread soon


def _set_class(thread: int | None, name: str) -> None:
    """Set the scheduling class of the thread with this system id; 0 is the calling thread."""
    if sys.platform.startswith("linux"):
        with suppress(OSError):  # a sandbox may forbid it; the thread may have ended
            os.sched_setscheduler(thread or 0, getattr(os, name), os.sched_param(0))
