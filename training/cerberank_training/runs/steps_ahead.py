"""The batches of training steps, made by a thread or by other processes while the training computes earlier steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from cerberank_training.runs.processes import Processes

ItemT = TypeVar("ItemT")
BatchT = TypeVar("BatchT", bound="TrainingBatch")


class TrainingBatch(Protocol):
    """The tensors of some examples of a step."""

    @property
    def pairs(self) -> int:
        """The number of examples."""

    def on(self, device: torch.device) -> Self:
        """The batch on `device`."""


class Source(Protocol[ItemT]):
    """The items that steps are made of: a sampler's, or groups that were sampled beforehand."""

    def step(self, step: int, size: int) -> list[ItemT]:
        """The `size` items of step `step`; the same in every call."""


@dataclass(frozen=True, slots=True)
class EqualSteps(Generic[ItemT]):
    """The items of all processes, if every step has the same number."""

    source: Source[ItemT]
    size: int

    def __call__(self, step: int, position: int) -> list[ItemT]:
        """The items of step `step`."""
        return self.source.step(step, self.size)


@dataclass(frozen=True, slots=True)
class PreparedStep(Generic[BatchT]):
    """The part of a step that this process computes; `questions` counts the items of all processes."""

    questions: int
    batches: list[BatchT]
    """Batches with equal numbers of items, whose gradients are added up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparation(Generic[ItemT, BatchT]):
    """Makes the part of a step that a process computes. Workers get a copy of this object; mapped data are shared."""

    items: Callable[[int, int], list[ItemT]]
    """The items of all processes in a step, from its number and the number of items before it. An item is a question
    with some of its candidates, or another unit that a batch cannot divide.
    """
    batch: Callable[[list[ItemT]], BatchT]
    accumulate: int
    """The number of batches."""
    processes: Processes

    def __call__(self, step: int, position: int) -> PreparedStep[BatchT]:
        """The part of the step `step`, before which there are `position` items."""
        items = self.items(step, position)
        share = self.processes.share(items)
        return PreparedStep(len(items), [self.batch(share[part :: self.accumulate]) for part in range(self.accumulate)])


class _Steps(IterableDataset[PreparedStep[BatchT]]):
    """The prepared steps from a number on. Each of n workers makes every n-th step."""

    def __init__(self, prepare: Callable[[int, int], PreparedStep[BatchT]], steps: range, position: int) -> None:
        self._prepare = prepare
        self._numbers = steps
        self._position = position

    def __iter__(self) -> Iterator[PreparedStep[BatchT]]:
        worker, position = get_worker_info(), self._position
        for step in self._numbers[worker.id :: worker.num_workers] if worker else self._numbers:
            prepared = self._prepare(step, position)
            position += prepared.questions
            yield prepared


class StepsAhead(Generic[BatchT]):
    """Prepares the next step in a thread while a step is computed, or several steps ahead in worker processes."""

    def __init__(
        self, prepare: Callable[[int, int], PreparedStep[BatchT]], steps: int, *, workers: int = 0, position: int = 0
    ) -> None:
        """`prepare` makes a step from its number and position; steps are taken in order, up to `steps`.

        With more than one of the `workers` the result must not depend on the position.
        """
        self._prepare = prepare
        self._steps = steps
        self._workers = workers
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._next: Future[PreparedStep[BatchT]] | None = None
        self._ahead: Iterator[PreparedStep[BatchT]] | None = None
        self.position = position
        """The number of items that were taken; a resumed run continues there."""

    def take(self, step: int) -> PreparedStep[BatchT]:
        """The step with the number `step`. Raises the error of its preparation."""
        if self._workers:
            if self._ahead is None:
                steps = _Steps(self._prepare, range(step, self._steps), self.position)
                # A loader draws a seed for its workers; from the default generator it would change the step's dropout.
                seeds = torch.Generator()
                self._ahead = iter(DataLoader(steps, batch_size=None, num_workers=self._workers, generator=seeds))
            prepared = next(self._ahead)
            self.position += prepared.questions
            return prepared
        taken = (self._next or self._thread.submit(self._prepare, step, self.position)).result()
        self.position += taken.questions
        more = step + 1 < self._steps
        self._next = self._thread.submit(self._prepare, step + 1, self.position) if more else None
        return taken

    def close(self) -> None:
        """End the thread, or the processes."""
        self._thread.shutdown(cancel_futures=True)
        self._ahead = None
