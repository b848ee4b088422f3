"""The options of a run that do not determine what is learnt; every job has them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from cerberank_models.commands.options import Device, check_device, chosen_device
from cerberank_models.commands.values import Whole
from cerberank_training.runner.train_config import TrainConfig
from cerberank_training.runs.launched import launched_processes
from cerberank_training.runs.record import RunRecord
from cerberank_training.tracking.opening import check_trackers, open_trackers
from cerberank_training.tracking.tracker import Tracker

GPU_WORKERS = 4
"""By default so many processes make batches for a GPU: a step takes about 14 ms of a processor and 9 to 45 of a GPU."""
Track = Annotated[
    tuple[Literal["tensorboard", "wandb", "mlflow"], ...],
    Parameter(help="Tracker of OUT/log.jsonl; repeat for several."),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where a run is computed, and who follows it."""

    device: Device = "auto"
    workers: Whole | None = None
    """Processes for batches (default: 4 on a GPU, else 0)."""
    track: Track = ()

    @property
    def place(self) -> str:
        """The device, which `auto` leaves to the machine."""
        return chosen_device(self.device)

    @property
    def batch_workers(self) -> int:
        """The processes that make batches. A GPU is faster than one thread that makes them."""
        return (0 if self.place == "cpu" else GPU_WORKERS) if self.workers is None else self.workers

    def check(self, config: TrainConfig) -> None:
        """Raise ValueError, which names the option, for a device or tracker that is not there, or an unequal step.

        No processor multiplies fp16 numbers fast, so that fp16 without a GPU is a mistake.
        """
        config.check_shares(launched_processes())
        check_trackers(self.track)
        check_device(self.place)
        if config.precision == "fp16" and self.place == "cpu":
            raise ValueError("--precision fp16 needs a GPU: the processor trains in bf16 or fp32")

    def trackers(self, out: Path, record: RunRecord) -> dict[str, Tracker]:
        """The trackers of the run in `out`."""
        return open_trackers(self.track, out, name=out.name, settings=record.bound | record.free)
