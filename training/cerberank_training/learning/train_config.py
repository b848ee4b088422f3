"""The schedule of a training run: its steps, the stages that each step trains, and the learning rates."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any, Literal


def ramp_steps(warmup: float, steps: int) -> float:
    """The number of steps in which a learning rate rises: `warmup` itself from 1 on, else this share of the `steps`.

    Raises ValueError for a warm-up below 0 or longer than the run.
    """
    ramp = warmup if warmup >= 1 else warmup * steps
    if not warmup >= 0 or ramp > max(1, steps):
        raise ValueError(f"warmup {warmup:g} does not fit into steps {steps}: give another of either")
    return ramp


FREE = ("steps", "patience", "save_every", "planned", "gradient_checkpointing")
"""The settings that may change when a run is continued."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """All settings that determine the result of a run, apart from its data and objective."""

    steps: int
    questions_per_step: int = 16
    tokens_per_step: int | None = None
    """The largest number of tokens in a step of all processes, which replaces `questions_per_step` (CT section 5.2: up
    to 2,000). A step has at least one question or pair."""
    accumulate: int = 1
    """The number of batches that each process divides its part of a step into; their gradients are added up."""
    learning_rate: float = 6e-5
    fresh_learning_rate: float = 4e-4
    """The learning rate of classifiers and exits. They start from random weights unless the base has them."""
    warmup: float = 0.05
    """The part of the run in which the learning rate rises linearly, before it falls linearly to 0. A value below 1 is
    a share of the steps, and from 1 on a number of steps (CT section 5.2: 4,000).
    """
    decay: bool = True
    """If False, the learning rate stays constant after the warm-up (TRMD's released code)."""
    weight_decay: float = 0.01
    """The decay of matrices; biases and the weights of norms do not decay. A run that was begun by a version that
    decayed them too goes on with that rule."""
    clip: float = 1.0
    """The largest norm of a step's gradients; 0 for none."""
    dropout: float = 0.1
    stages: Literal["uniform", "joint"] = "uniform"
    """`uniform`: a step trains ONE stage, drawn uniformly among exits and heads (CT section 5.2). `joint`: a step
    trains all stages in one pass through the body, for hardly more work."""
    final_only: float = 0.0
    """Share of the steps, at the start, that train the heads alone (a warm start)."""
    train_token_embeddings: bool = False
    """Off by default: a small data set would change the embeddings of its few words and not those of other words."""
    gradient_checkpointing: bool = False
    """Keep only the input of each layer, and compute the layer again in the backward pass (Chen et al., 2016). The
    gradients are the same and need less memory; a step takes a third longer."""
    precision: str = "bf16"
    evaluate_every: int = 500
    patience: int | None = None
    """Stop after this number of evaluations on dev without improvement."""
    save_every: int = 100
    seed: int = 1
    planned: int | None = None
    """The number of steps with which the run was begun; None stands for `steps`. `warmup` and `final_only` are shares
    of this number, so that the warm-up and the warm start do not move when the run is extended."""

    def __post_init__(self) -> None:
        """Raise ValueError, which names the setting, for a step without a batch or a warm-up longer than the run."""
        if self.accumulate < 1:
            raise ValueError(f"accumulate must be at least 1, not {self.accumulate}")
        ramp_steps(self.warmup, self.planned or self.steps)

    @property
    def warm_start(self) -> float:
        """The number of steps that train the heads alone."""
        return self.final_only * (self.planned or self.steps)

    def trained(self, step: int, stages: int) -> tuple[int, ...]:
        """The stages that `step` trains; they follow from the seed and the step, so all processes draw the same."""
        if step < self.warm_start:
            return (stages - 1,)
        if self.stages == "joint":
            return tuple(range(stages))
        return (random.Random(f"{self.seed}/stage/{step}").randrange(stages),)

    def all_trained(self, step: int) -> bool:
        """True if exits have been trained by `step`. Weights with untrained exits cannot become the best."""
        return self.final_only >= 1.0 or step > self.warm_start

    def rate(self, step: int) -> float:
        """The factor of the learning rates at `step`: it rises over `warmup` and falls to 0 at the last step.

        In an extended run the rate falls to the new last step, from its value in this schedule at the first added step.
        """
        ramp = max(1.0, ramp_steps(self.warmup, self.planned or self.steps))
        rising = (step + 1) / ramp
        return min(rising, (self.steps - step) / max(1.0, self.steps - ramp)) if self.decay else min(rising, 1.0)


def bound_settings(config: TrainConfig) -> dict[str, Any]:
    """The settings that may not change when a run is continued; `accumulate` is left out if it is 1."""
    one = ("accumulate",) if config.accumulate == 1 else ()
    return {name: value for name, value in asdict(config).items() if name not in (*FREE, *one)}
