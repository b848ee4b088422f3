"""Threads that do independent pieces of one job side by side."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future

Task = Callable[[], None]
Work = tuple[Task, "Future[None]"]


class Crew:
    """A fixed number of threads, which end with it.

    They are daemons: a task that hangs must not keep the process from ending, as an executor's would.
    """

    def __init__(self, size: int) -> None:
        """`size` threads, one being none: tasks then run in the caller's.

        They start with the first tasks, not here: threads inherit the priority of the one that starts them, and who
        opens a model may have a low one.
        """
        self._size = size
        self._inbox: queue.SimpleQueue[Work | None] | None = None
        self._lock = threading.Lock()

    def run(self, tasks: Iterable[Task]) -> None:
        """Return when all are done, and then raise what the first of those that failed raised."""
        if self._size == 1:
            for task in tasks:
                task()
            return
        inbox = self._called()
        futures: list[Future[None]] = []
        for task in tasks:
            futures.append(Future())
            inbox.put((task, futures[-1]))
        errors = [future.exception() for future in futures]  # waits for every one: none may write later
        for error in errors:
            if error is not None:
                raise error

    def _called(self) -> queue.SimpleQueue[Work | None]:
        """The inbox of the threads, which work from now on."""
        with self._lock:
            if self._inbox is None:
                self._inbox = queue.SimpleQueue()
                for number in range(self._size):
                    threading.Thread(target=_work, args=(self._inbox,), name=f"crew-{number}", daemon=True).start()
                weakref.finalize(self, _dismiss, self._inbox, self._size)
            return self._inbox


def _work(inbox: queue.SimpleQueue[Work | None]) -> None:
    while (work := inbox.get()) is not None:
        task, future = work
        try:
            task()
        except BaseException as error:  # the caller's to judge
            future.set_exception(error)
        else:
            future.set_result(None)
        del work, task, future  # an idle thread must not hold the last job's arrays


def _dismiss(inbox: queue.SimpleQueue[Work | None], size: int) -> None:
    for _ in range(size):
        inbox.put(None)
