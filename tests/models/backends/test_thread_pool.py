"""Independent pieces of a job, side by side."""

from __future__ import annotations

import gc
import threading
from functools import partial

import pytest

from cerberank_models.backends.thread_pool import Crew


@pytest.mark.parametrize("size", [1, 3])
def test_every_task_is_done_when_it_returns(size: int) -> None:
    """More tasks than threads, and none at all."""
    done: list[int] = []
    crew = Crew(size)
    crew.run(partial(done.append, number) for number in range(20))
    assert sorted(done) == list(range(20))
    crew.run([])


def test_tasks_run_side_by_side() -> None:
    """Three tasks that wait for each other end only together."""
    barrier = threading.Barrier(3, timeout=30)

    def meet() -> None:
        barrier.wait()

    Crew(3).run([meet] * 3)


@pytest.mark.parametrize("size", [1, 2])
def test_an_error_is_raised_and_the_crew_goes_on(size: int) -> None:
    """The first error by order, after the others are done; the next job finds every thread."""
    done: list[str] = []

    def fail(reason: str) -> None:
        raise MemoryError(reason)

    crew = Crew(size)
    with pytest.raises(MemoryError, match="first"):
        crew.run([partial(done.append, "a"), partial(fail, "first"), partial(fail, "second")])
    crew.run([partial(done.append, "b")] * 3)
    assert done == ["a", "b", "b", "b"]


def test_threads_end_with_their_crew() -> None:
    """A version that is unloaded leaves no thread behind; one that is only opened has none."""
    before = set(threading.enumerate())
    crew = Crew(2)
    assert set(threading.enumerate()) == before
    crew.run([])
    mine = set(threading.enumerate()) - before
    assert len(mine) == 2
    del crew
    gc.collect()
    for thread in mine:
        thread.join(30)
    assert not any(thread.is_alive() for thread in mine)
