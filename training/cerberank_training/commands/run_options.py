"""Options that commands which train have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token

from cerberank_models.commands.options import check_device, chosen_device
from cerberank_models.commands.values import Whole
from cerberank_training.evaluation.question_metrics import METRICS
from cerberank_training.learning.train_config import TrainConfig
from cerberank_training.runs.dev_set import DRAWN, Size
from cerberank_training.runs.launched import launched_processes
from cerberank_training.runs.record import RunRecord
from cerberank_training.tracking.opening import check_trackers, open_trackers
from cerberank_training.tracking.tracker import Tracker

GPU_WORKERS = 4
"""By default so many processes make batches for a GPU: a step takes about 14 ms of a processor and 9 to 45 of a GPU."""


def data_help(what: str) -> str:
    """The help of an option that names questions."""
    return f"{what}, as FORMAT:PATH (docs/data.md)."


def _dev_size(type_: Any, tokens: Sequence[Token]) -> Size:
    words = tokens[0].value
    if words != "all" and not (words.isdecimal() and int(words)):
        raise ValueError(f"takes a whole number of at least 1, or all, not {words!r}")
    return "all" if words == "all" else int(words)


DevQuestions = Annotated[
    int | Literal["all"] | None,
    Parameter(
        converter=_dev_size,
        n_tokens=1,
        help=f"Number of questions of --dev to draw, or all (default: {DRAWN}; for asnq all).",
    ),
]
Track = Annotated[
    tuple[Literal["tensorboard", "wandb", "mlflow"], ...],
    Parameter(help="Tracker to send the figures of OUT/log.jsonl to; repeat for several."),
]


def _check_metric(type_: Any, name: str) -> None:
    if name not in METRICS:
        raise ValueError(f"Choose from {', '.join(METRICS)}.")


Select = Annotated[
    str, Parameter(help=f"Metric on dev to choose weights by: {', '.join(METRICS)}.", validator=_check_metric)
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a run that do not determine what is learnt; every job has them."""

    device: str = "auto"
    """cpu, cuda, or cuda:N (default: a GPU if there is one)."""
    workers: Whole | None = None
    """Processes that make batches ahead; 0 for a thread (default: 4 on a GPU, 0 on a processor)."""
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
