"""Questions at a constant rate, however long their answers take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx

Ask = Callable[[httpx.Client, float, int], None]
"""Asks one question; given its due time on the monotonic clock, and its number from 0."""


@contextmanager
def asking(url: str, rate: float, ask: Ask, *, connections: int, patience: float) -> Iterator[None]:
    """Call `ask` `rate` times a second while the block lasts; every call has returned when it ends.

    At most `connections` calls run at once, each with an answer within `patience` seconds or httpx's error.
    """
    done = threading.Event()
    limits = httpx.Limits(max_connections=connections)
    with (
        httpx.Client(base_url=url, timeout=patience, limits=limits) as client,
        ThreadPoolExecutor(connections) as pool,
    ):

        def pace() -> None:
            due, number = time.monotonic(), 0
            while not done.wait(max(0.0, due - time.monotonic())):
                pool.submit(ask, client, due, number)
                number += 1
                due += 1.0 / rate

        pacer = threading.Thread(target=pace)
        pacer.start()
        try:
            yield
        finally:
            done.set()
            pacer.join()
