"""The settings of every training run: of its loop (`TrainConfig`), and of the call (`RunOptions`).

Annotations are evaluated here, because cyclopts reads those of `TrainConfig` in the modules of its subclasses.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from cyclopts import Parameter, Token

from cerberank_models.backends.processors import usable_processors
from cerberank_models.commands.options import Device, check_device, chosen_device
from cerberank_models.commands.values import Count, Interval, NotNegative, Positive, Whole
from cerberank_training.runs.record import RunRecord, launched_processes
from cerberank_training.runs.run_data import DRAWN, Size
from cerberank_training.runs.tracking.opening import check_trackers, open_trackers
from cerberank_training.runs.tracking.tracker import Tracker

RECIPE_HELP = "Recipe (`cerberank train recipes` lists them) or TOML file."
Precision: TypeAlias = Literal["fp32", "bf16", "fp16"]
UNBOUND = ("steps", "patience", "save_every", "epochs", "gradient_checkpointing")
"""The settings of `TrainConfig` that are bound elsewhere (steps and patience, for every job), or not at all."""
GPU_WORKERS = 4
"""By default so many processes make batches for a GPU, or fewer if there are fewer processors: a step takes about 14 ms
of a processor and 9 to 45 of a GPU."""
Track = Annotated[
    tuple[Literal["tensorboard", "wandb", "mlflow"], ...],
    Parameter(help="Tracker of OUT/log.jsonl; repeat for several."),
]


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


def ramp_steps(warmup: float, steps: int) -> float:
    """The number of steps in which a learning rate rises: `warmup` itself from 1 on, else this share of the `steps`.

    Raises ValueError for a warm-up below 0 or longer than the run.
    """
    ramp = warmup if warmup >= 1 else warmup * steps
    if not warmup >= 0 or ramp > max(1, steps):
        raise ValueError(f"--warmup {warmup:g} does not fit into steps {steps}: give another of either")
    return ramp


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """The settings that all trainings have, for the loop and as options of a command."""

    unit: ClassVar[int] = 1
    """The number of examples that a batch cannot divide."""
    steps: Count = 2000
    """Most training steps."""
    epochs: Positive | None = None
    """Passes over the data, instead of --steps."""
    examples_per_step: Count = 16
    """Groups or pairs of a step."""
    accumulate: Count = 1
    """Batches of a step in each process."""
    evaluate_every: Interval = 500
    """Steps between evaluations; below 1 a share."""
    save_every: Count = 100
    """Steps between saved states."""
    patience: Count | None = None
    """Evaluations without a gain that end the run."""
    learning_rate: Positive = 6e-5
    """Highest rate of layers and embeddings."""
    # The rate falls linearly to 0 behind it. CT section 5.2 has 4,000 steps.
    warmup: NotNegative = 0.05
    """Steps in which the rate rises, or a share."""
    decay: Annotated[bool, Parameter(parse=False)] = True
    """If False, the learning rate stays constant after the warm-up (TRMD's released code)."""
    # Matrices decay, biases and norms do not.
    weight_decay: NotNegative = 0.01
    """Weight decay of AdamW."""
    clip: NotNegative = 1.0
    """Largest norm of gradients; 0 for none."""
    precision: Precision = "bf16"
    """Precision of the forward pass."""
    # Chen et al., 2016: the input of each layer alone is in memory. The gradients are the same.
    gradient_checkpointing: bool = False
    """Less memory, for a third more work."""
    seed: Whole = 1
    """Seed of new weights, dropout and order."""

    def __post_init__(self) -> None:
        """Raise ValueError, which names the setting, for a warm-up longer than the run."""
        if self.epochs is None:
            ramp_steps(self.warmup, self.steps)

    @property
    def rates(self) -> dict[str, float]:
        """The highest learning rates by their names in the log; a second one is that of fresh weights."""
        return {"learning_rate": self.learning_rate}

    @property
    def bound(self) -> dict[str, Any]:
        """The settings that the record of a job binds, beside the steps and the patience that every record binds."""
        return {name: value for name, value in asdict(self).items() if name not in UNBOUND}

    def resolved(self, examples: int) -> Self:
        """The settings with whole numbers of steps, for an epoch of this many `examples`."""
        steps = self.steps if self.epochs is None else math.ceil(self.epochs * examples / self.examples_per_step)
        # Rounded down: the last share ends with the run, and not a step behind it.
        share = max(1, int(round(self.evaluate_every * steps, 6)))
        every = share if self.evaluate_every < 1 else int(self.evaluate_every)
        return replace(self, steps=steps, epochs=None, evaluate_every=every)

    def check_shares(self, processes: int) -> None:
        """Raise ValueError for a step that accumulated batches and processes cannot share equally."""
        step = self.unit * self.accumulate * processes
        if self.examples_per_step % step:
            raise ValueError(
                f"--examples-per-step is {self.examples_per_step}: it must be a multiple of {step}, for "
                f"{self.accumulate} accumulated batches in each of {processes} processes"
            )

    def all_trained(self, step: int) -> bool:
        """True if every part has been trained by `step`, so that its weights can become the best."""
        return True

    def rate(self, step: int) -> float:
        """The factor of the learning rates at `step`: it rises over `warmup` and falls to 0 at the last step."""
        ramp = max(1.0, ramp_steps(self.warmup, self.steps))
        rising = (step + 1) / ramp
        return min(rising, (self.steps - step) / max(1.0, self.steps - ramp)) if self.decay else min(rising, 1.0)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a call, which do not determine what is learnt: the device, and who follows the run."""

    device: Device = "auto"
    workers: Whole | None = None
    """Processes for batches (default: up to 4 on a GPU, else 0; accelerate: 0)."""
    track: Track = ()

    @property
    def place(self) -> str:
        """The device, which `auto` leaves to the machine."""
        return chosen_device(self.device)

    @property
    def batch_workers(self) -> int:
        """The processes that make batches. A GPU is faster than one thread that makes them."""
        if self.workers is not None:
            return self.workers
        return 0 if self.place == "cpu" else min(GPU_WORKERS, usable_processors())

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
