"""The thread pool runs all tasks in parallel, raises errors and stops its threads."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from functools import partial

import pytest

from cerberank_models.backends.thread_pool import ThreadPool


@pytest.mark.parametrize("size", [1, 3])
def test_every_task_is_done_when_it_returns(size: int) -> None:
    """`run` finishes all tasks, whether there are more tasks than threads or none."""
    done: list[int] = []
    pool = ThreadPool(size)
    pool.run(partial(done.append, number) for number in range(20))
    assert sorted(done) == list(range(20))
    pool.run([])


def test_tasks_run_side_by_side() -> None:
    """Three tasks that wait for each other finish, so they run at the same time."""
    barrier = threading.Barrier(3, timeout=30)

    def meet() -> None:
        barrier.wait()

    ThreadPool(3).run([meet] * 3)


@pytest.mark.parametrize("size", [1, 2])
def test_an_error_is_raised_and_the_pool_goes_on(size: int) -> None:
    """`run` raises the first task's error after all tasks are done, and the pool still works afterwards."""
    done: list[str] = []

    def fail(reason: str) -> None:
        raise MemoryError(reason)

    pool = ThreadPool(size)
    with pytest.raises(MemoryError, match="first"):
        pool.run([partial(done.append, "a"), partial(fail, "first"), partial(fail, "second")])
    pool.run([partial(done.append, "b")] * 3)
    assert done == ["a", "b", "b", "b"]


def test_threads_end_with_their_pool() -> None:
    """A pool starts its threads with its first run, and they end when the pool is deleted."""
    before = set(threading.enumerate())
    pool = ThreadPool(2)
    assert set(threading.enumerate()) == before
    pool.run([])
    mine = set(threading.enumerate()) - before
    assert len(mine) == 2
    del pool
    gc.collect()
    for thread in mine:
        thread.join(30)
    assert not any(thread.is_alive() for thread in mine)


FORK = """
import os, warnings
from cerberank_models.backends.thread_pool import ThreadPool
warnings.simplefilter("ignore")  # newer versions of Python warn of every fork beside threads
pool = ThreadPool(2)
pool.run([lambda: None] * 3)
child = os.fork()
pool.run([lambda: os.write(1, b"done ")] * 3)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_pool_works_in_a_forked_process() -> None:
    """Its threads were running before the fork, and are not in the forked process."""
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "done " * 6
