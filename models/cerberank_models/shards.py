"""Maps a function over shards, in this process or on a Ray cluster: that of RAY_ADDRESS, or a local one.

Each Ray worker opens its models itself, so a folder must have the same path on every machine; a hub id works
everywhere. Only the calling process writes files, so workers need no shared disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

Work = Callable[[ItemT], ResultT]
ShardMap = Callable[[Iterator[tuple[int, ItemT]]], Iterator[tuple[int, ResultT]]]
"""A function from numbered shards to results with the same numbers, in any order."""
RESTARTS = 3
"""The number of times that a worker is restarted after its process was killed. An exception ends the run at once."""


class WorkerError(RuntimeError):
    """A Ray worker failed; the message is the last line of its own error."""


def map_here(work: Work[ItemT, ResultT]) -> ShardMap[ItemT, ResultT]:
    """A map that runs one shard after another in this process."""

    def run(shards: Iterator[tuple[int, ItemT]]) -> Iterator[tuple[int, ResultT]]:
        for number, item in shards:
            yield number, work(item)

    return run


def map_on_ray(
    open_work: Callable[[], Work[ItemT, ResultT]], *, workers: int, device: str, threads: int = 1
) -> ShardMap[ItemT, ResultT]:
    """A map with `workers` Ray actors, each with a GPU if `device` is `cuda`, or else with `threads` processors.

    Each actor calls `open_work` once. At most one shard per worker is in memory at a time. The map does not wait for
    workers that the cluster has no room for. Raises WorkerError if a worker fails.
    """
    import ray  # noqa: PLC0415 - an optional dependency
    import ray.exceptions  # noqa: PLC0415

    gpu = device.startswith("cuda")
    options = {"num_gpus": 1, "num_cpus": 0} if gpu else {"num_cpus": threads}

    def run(shards: Iterator[tuple[int, ItemT]]) -> Iterator[tuple[int, ResultT]]:
        if not (first := list(islice(shards, workers))):
            return
        if not ray.is_initialized():
            ray.init(log_to_driver=False, include_dashboard=False)
        # Workers open their models while the first shards wait; a worker that is not placed yet holds nothing up.
        remote = ray.remote(_Worker).options(**options, max_restarts=RESTARTS, max_task_retries=RESTARTS)
        actors = [remote.remote(open_work) for _ in first]
        opening: dict[Any, Any] = {actor.ready.remote(): actor for actor in actors}
        running: dict[Any, tuple[Any, int]] = {}
        rest = _chained(first, shards)
        left = next(rest, None)
        try:
            while left is not None or running:
                (done, *_), _ = ray.wait([*opening, *running])
                value = ray.get(done)
                if done in opening:
                    actor = opening.pop(done)
                else:
                    actor, number = running.pop(done)
                    yield number, value
                if left is not None:
                    number, item = left
                    running[actor.run.remote(item)] = actor, number
                    left = next(rest, None)
        except ray.exceptions.RayError as error:
            raise WorkerError(f"a Ray worker failed: {str(error).strip().splitlines()[-1]}") from error
        finally:
            for actor in actors:
                ray.kill(actor)

    return run


def _chained(first: list[tuple[int, ItemT]], rest: Iterator[tuple[int, ItemT]]) -> Iterator[tuple[int, ItemT]]:
    """All shards. The items of `first` are removed from it as they are taken, so that their memory is freed."""
    while first:
        yield first.pop(0)
    yield from rest


class _Worker:
    """The Ray actor of one worker, which holds its models."""

    def __init__(self, open_work: Callable[[], Work[Any, Any]]) -> None:
        self._work = open_work()

    def ready(self) -> None:
        """Return when the models are open."""

    def run(self, item: Any) -> Any:
        """Map one shard."""
        return self._work(item)
