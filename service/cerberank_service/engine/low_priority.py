"""Work that can wait, done so that those who are being answered hardly feel it.

What Python's own lock does not hold up (copying, hashing, opening graphs) runs in a thread that takes what processor
time is left. A thread that computes with that lock must not stand back in the middle, for everybody would wait for it:
such work is cut into pieces, each begun while nobody is being answered.
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
"""Seconds before a piece begins all the same: under a full load, too, a push must arrive."""
LOOK_SECONDS = 0.001
LONGEST_IDLE = 5.0
"""Seconds after which work at low priority is as urgent as any, on processors that never rest. Leaving the idle class
takes CAP_SYS_NICE or RLIMIT_NICE, which a container seldom has: there such work goes on with what is left, which is
enough beside any load of the service's own (docs/reliability.md, Limits).
"""


class Leisure:
    """Of a service; any thread may use it."""

    def __init__(self, busy: Callable[[], bool]) -> None:
        """`busy` says whether somebody is being answered; it is asked often."""
        self._busy = busy

    def wait(self) -> None:
        """Return when a piece of work of some milliseconds may begin."""
        end = time.monotonic() + LONGEST_WAIT
        while self._busy() and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)


def at_low_priority(work: Callable[[], ResultT]) -> ResultT:
    """Run `work` in a thread that stands back; returns what it returns, raises what it raises.

    On Linux it takes only the processor time that nobody else wants, for `LONGEST_IDLE`. Niceness would not do: the
    kernel lets a waking thread have a processor that runs the idle class, but not one that runs a nice thread. Threads
    and processes that `work` starts stand back as well, for as long as they live. Elsewhere it runs like any other.
    """
    future: Future[ResultT] = Future()

    def run() -> None:
        _set_class(0, "SCHED_IDLE")
        try:
            future.set_result(work())
        except BaseException as error:  # the caller's to judge
            future.set_exception(error)

    thread = threading.Thread(target=run, name="low-priority", daemon=True)
    thread.start()
    hurry = threading.Timer(LONGEST_IDLE, _set_class, (thread.native_id, "SCHED_OTHER"))
    hurry.start()  # from here: its thread must not stand back
    try:
        return future.result()
    finally:
        hurry.cancel()
        hurry.join()  # the thread's number may be another's soon


def _set_class(thread: int | None, name: str) -> None:
    """Of a thread by the system's number; 0 is the one that calls."""
    if sys.platform.startswith("linux"):
        with suppress(OSError):  # a sandbox may forbid it; the thread may have ended
            os.sched_setscheduler(thread or 0, getattr(os, name), os.sched_param(0))
