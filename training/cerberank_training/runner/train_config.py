"""The settings of a training run: its steps, its optimiser, and the stages that each step of a student trains.

Annotations are evaluated here, because cyclopts reads those of `TrainConfig` in the modules of its subclasses.
"""

import math
import random
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from cerberank_models.commands.values import RECIPE_KEY, Count, Interval, NotNegative, Positive, Share, Whole

Precision: TypeAlias = Literal["fp32", "bf16", "fp16"]
FREE = ("steps", "patience", "save_every")
"""The settings that may change when a run is continued, and that its record states."""
UNBOUND = (*FREE, "epochs", "planned", "gradient_checkpointing")
"""The settings that do not determine a run's weights at a given step."""


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
    """Number of passes over all questions or pairs, instead of --steps."""
    examples_per_step: Count = 16
    """Groups or pairs of a step, of all processes together."""
    accumulate: Count = 1
    """Batches into which each process divides its part of a step."""
    evaluate_every: Interval = 500
    """Steps between evaluations on dev; below 1 a share of all."""
    save_every: Count = 100
    """Steps between saved states, from which a run continues."""
    patience: Count | None = None
    """Number of evaluations without a gain after which the run stops."""
    learning_rate: Positive = 6e-5
    """Highest learning rate of the layers and embeddings."""
    # The rate falls linearly to 0 behind it. CT section 5.2 has 4,000 steps.
    warmup: NotNegative = 0.05
    """Steps in which the rate rises; below 1 a share of all steps."""
    decay: Annotated[bool, Parameter(parse=False)] = True
    """If False, the learning rate stays constant after the warm-up (TRMD's released code)."""
    # Matrices decay, biases and norms do not. A run that a version began which decayed them too keeps that rule.
    weight_decay: NotNegative = 0.01
    """Weight decay of AdamW."""
    clip: NotNegative = 1.0
    """Largest norm of a step's gradients; 0 for none."""
    precision: Precision = "bf16"
    """Precision of the forward pass in training; fp16, which needs a GPU, scales the loss."""
    # Chen et al., 2016: the input of each layer alone is in memory. The gradients are the same.
    gradient_checkpointing: Annotated[bool, Parameter(negative="--no-gradient-checkpointing")] = False
    """Compute layers again in the backward pass, which takes less memory and a third more work."""
    seed: Whole = 1
    """Random seed, of new weights, dropout and the order of examples."""
    planned: Annotated[int | None, Parameter(parse=False)] = None
    """The number of steps with which the run was begun; None stands for `steps`. The warm-up and the warm start are
    shares of this number, so that they do not move when the run is extended."""

    def __post_init__(self) -> None:
        """Raise ValueError, which names the setting, for a warm-up longer than the run."""
        if self.epochs is None:
            ramp_steps(self.warmup, self.begun_with)

    @property
    def begun_with(self) -> int:
        """The number of steps with which the run was begun."""
        return self.planned or self.steps

    @property
    def rates(self) -> dict[str, float]:
        """The highest learning rates by their names in the log; a second one is that of fresh weights."""
        return {"learning_rate": self.learning_rate}

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
        """The factor of the learning rates at `step`: it rises over `warmup` and falls to 0 at the last step.

        In an extended run the rate falls to the new last step, from its value in this schedule at the first added step.
        """
        ramp = max(1.0, ramp_steps(self.warmup, self.begun_with))
        rising = (step + 1) / ramp
        return min(rising, (self.steps - step) / max(1.0, self.steps - ramp)) if self.decay else min(rising, 1.0)


@Parameter(name="*", group=Group("Steps and optimiser", sort_key=4))
@dataclass(frozen=True, kw_only=True, slots=True)
class StudentConfig(TrainConfig):
    """The settings of a student's training, with stages, and a rate of its own for the parts on top of the body."""

    # CT section 5.2: up to 2,000 tokens. Replaces `examples_per_step`; a step has at least one question or pair.
    tokens_per_step: Count | None = None
    """Most tokens of a step, of all processes together: groups or pairs are added until the next would not fit."""
    fresh_learning_rate: Positive = 4e-4
    """Highest learning rate of classifiers and exits, new ones or the base's (default: scaled with --learning-rate)."""
    dropout: Annotated[float, Parameter(validator=Number(gte=0, lt=1))] = 0.1
    """Dropout of the whole network."""
    # CT section 4.3.1 draws one. All jointly share one pass through the body, for hardly more work.
    stages: Literal["uniform", "in_turn", "joint"] = "uniform"
    """Stages (exits, and heads) that a step trains: one, drawn uniformly or taken in turn, or all jointly."""
    final_only: Annotated[Share, RECIPE_KEY] = 0.0
    """Share of the steps, from the first on, that train only the heads and no exits."""
    # A small data set would change the embeddings of its few words, and not those of other words.
    train_token_embeddings: Annotated[bool, RECIPE_KEY] = False
    """Train the token embeddings too."""

    def __post_init__(self) -> None:
        """Raise ValueError, which names the setting, for settings that do not fit each other."""
        TrainConfig.__post_init__(self)  # `super()` fails in a dataclass with slots
        if self.epochs is not None and self.tokens_per_step is not None:
            raise ValueError("--epochs needs --examples-per-step: steps of a number of tokens differ in their examples")

    @property
    def rates(self) -> dict[str, float]:
        """The rate of the layers, and of the small parts on top of them, which are often new."""
        return {"learning_rate": self.learning_rate, "fresh_learning_rate": self.fresh_learning_rate}

    def check_shares(self, processes: int) -> None:
        """Raise ValueError for a step of a number of examples that cannot be shared equally."""
        if self.tokens_per_step is None:
            TrainConfig.check_shares(self, processes)

    @property
    def warm_start(self) -> float:
        """The number of steps that train the heads alone."""
        return self.final_only * self.begun_with

    def trained(self, step: int, stages: int) -> tuple[int, ...]:
        """The stages that `step` trains; they follow from the seed and the step, so all processes draw the same."""
        if step < self.warm_start:
            return (stages - 1,)
        if self.stages == "joint":
            return tuple(range(stages))
        if self.stages == "in_turn":
            return (step % stages,)
        return (random.Random(f"{self.seed}/stage/{step}").randrange(stages),)

    def all_trained(self, step: int) -> bool:
        """True if exits have been trained by `step`. Weights with untrained exits cannot become the best."""
        return self.final_only >= 1.0 or step > self.warm_start


def bound_settings(config: TrainConfig) -> dict[str, Any]:
    """The settings that may not change when a run is continued; `accumulate` is left out if it is 1."""
    one = ("accumulate",) if config.accumulate == 1 else ()
    return {name: value for name, value in asdict(config).items() if name not in (*UNBOUND, *one)}


def free_settings(config: TrainConfig) -> dict[str, Any]:
    """The settings of FREE."""
    return {name: getattr(config, name) for name in FREE}
