"""A thread for what happens on other machines in life: pushers and attackers must not take the service's processors."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor


def another_machine(*, yielding: bool) -> ThreadPoolExecutor:
    """One thread; `yielding` puts it, and every process that it starts, into Linux' idle class.

    What it does then takes the time that the service and its clients leave. Under another full load it would hardly
    get any, which is why tests do without.
    """
    return ThreadPoolExecutor(1, thread_name_prefix="elsewhere", initializer=_yield if yielding else None)


def _yield() -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
