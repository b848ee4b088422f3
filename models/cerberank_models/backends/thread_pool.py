"""A thread pool that runs the independent tasks of one job in parallel."""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future

Task = Callable[[], None]
Work = tuple[Task, "Future[None]"]


class ThreadPool:
    """A fixed number of daemon threads, which end when the pool is garbage-collected.

    Python joins the threads of `concurrent.futures.ThreadPoolExecutor` at exit, so a model run that hangs would keep a
    service from ending after SIGTERM. Python does not wait for daemon threads.
    """

    def __init__(self, size: int) -> None:
        """Use `size` threads; with a size of 1 tasks run in the caller's thread.

        The threads are started by the first call of `run`. A thread inherits the priority of the thread that starts it,
        and the pool may be made by a low-priority thread that opens a model. In a forked process, which has no thread
        of its parent, they are started again.
        """
        self._size = size
        self._inbox: queue.SimpleQueue[Work | None] | None = None
        self._lock = threading.Lock()
        self._process = os.getpid()

    def run(self, tasks: Iterable[Task]) -> None:
        """Run all tasks and wait for them, then raise the error of the first of the `tasks` that failed."""
        if self._size == 1:
            for task in tasks:
                task()
            return
        inbox = self._started()
        futures: list[Future[None]] = []
        for task in tasks:
            futures.append(Future())
            inbox.put((task, futures[-1]))
        errors = [future.exception() for future in futures]  # waits for all, so that no task writes after an error
        for error in errors:
            if error is not None:
                raise error

    def _started(self) -> queue.SimpleQueue[Work | None]:
        """Start the threads if they do not run in this process yet; returns the queue from which they take tasks."""
        if self._process != os.getpid():  # the lock, too, may be held by a thread that is not here
            self._process = os.getpid()
            self._inbox = None
            self._lock = threading.Lock()
        with self._lock:
            if self._inbox is None:
                self._inbox = queue.SimpleQueue()
                for number in range(self._size):
                    threading.Thread(
                        target=_work, args=(self._inbox,), name=f"thread-pool-{number}", daemon=True
                    ).start()
                weakref.finalize(self, _stop, self._inbox, self._size)
            return self._inbox


def _work(inbox: queue.SimpleQueue[Work | None]) -> None:
    while (work := inbox.get()) is not None:
        task, future = work
        try:
            task()
        except BaseException as error:  # raised again in the caller's thread
            future.set_exception(error)
        else:
            future.set_result(None)
        del work, task, future  # an idle thread must not hold the last job's arrays


def _stop(inbox: queue.SimpleQueue[Work | None], size: int) -> None:
    for _ in range(size):
        inbox.put(None)
