"""The processes that train one network together (torchrun), or a single process."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import distributed

from cerberank_training.runs.record import launched_processes

ItemT = TypeVar("ItemT")
TIMEOUT = timedelta(hours=2)
"""The time that processes wait for each other.

NCCL's default of 10 minutes is too short if the first process writes a large state to a slow disk.
"""


def leave_group() -> None:
    """Leave the group of processes, if there is one, after the last collective operation.

    Do not call it after an error: another process may still wait in the group for the process that failed.
    """
    if distributed.is_initialized():
        # A thread of gloo needs the interpreter to free its last tensors. If the interpreter ends first, the process
        # aborts although all files are written: 8 of 200 runs of two processes (pytorch#179291; before Python 3.14).
        time.sleep(1)
        distributed.destroy_process_group()


@dataclass(frozen=True, slots=True)
class Processes:
    """This process as number `rank` of `count`; rank 0 writes files."""

    rank: int = 0
    count: int = 1

    @classmethod
    def join(cls, device: torch.device) -> Processes:
        """Join the group that torchrun describes in the environment. Without such a group, return a single process."""
        count = launched_processes()
        if count == 1:
            return cls()
        if device.type == "cuda":  # from here on, the device "cuda" is the GPU of this process
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        if not distributed.is_initialized():
            distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
        return cls(distributed.get_rank(), count)

    @classmethod
    def current(cls) -> Processes:
        """The group that was joined, or a single process."""
        joined = distributed.is_available() and distributed.is_initialized()
        return cls(distributed.get_rank(), distributed.get_world_size()) if joined else cls()

    def share(self, items: Sequence[ItemT]) -> list[ItemT]:
        """This process's share: every `count`-th item. Raises ValueError when the shares would differ in size."""
        if len(items) % self.count:
            raise ValueError(f"{len(items)} questions a step cannot be shared by {self.count} processes")
        return list(items[self.rank :: self.count])

    def part(self, items: Sequence[ItemT]) -> Sequence[ItemT]:
        """This process's part of the items: consecutive ones. Parts may differ in size by one, and may be empty."""
        start, stop = (len(items) * rank // self.count for rank in (self.rank, self.rank + 1))
        return items[start:stop]

    def gather(self, value: ItemT) -> list[ItemT]:
        """The values of all processes, in the order of their ranks. Every process gets all values."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        distributed.all_gather_object(values, value)
        return cast(list[ItemT], values)

    def share_of_mean(self, size: int) -> float:
        """The factor for a mean over this process's `size` examples.

        DistributedDataParallel averages over processes. With this factor the average is the mean over all examples.
        """
        return self.count * size / self.sum(size)

    def wait(self) -> None:
        """Wait until every process has come here."""
        self.sum(0.0)

    def of_first(self, value: float) -> float:
        """The `value` of the first process, in every process."""
        return self.sum(value if self.rank == 0 else 0.0)

    def sum(self, value: float) -> float:
        """The sum of `value` over the processes."""
        if self.count == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64)
        if distributed.get_backend() == "nccl":
            total = total.cuda()
        distributed.all_reduce(total)
        return float(total)
