"""The schedule of a training run: its steps, the stages that each step trains, and the learning rates."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from cerberank_models.commands.values import RECIPE_KEY, Count, NotNegative, Positive, Share, Whole


def ramp_steps(warmup: float, steps: int) -> float:
    """The number of steps in which a learning rate rises: `warmup` itself from 1 on, else this share of the `steps`.

    Raises ValueError for a warm-up below 0 or longer than the run.
    """
    ramp = warmup if warmup >= 1 else warmup * steps
    if not warmup >= 0 or ramp > max(1, steps):
        raise ValueError(f"--warmup {warmup:g} does not fit into steps {steps}: give another of either")
    return ramp


FREE = ("steps", "patience", "save_every", "planned", "gradient_checkpointing")
"""The settings that may change when a run is continued."""


@Parameter(name="*", group=Group("Steps and optimiser", sort_key=4))
@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """The steps and the optimiser of a run, as settings of the loop and as options of `train distil`."""

    steps: Count = 2000
    """Most training steps."""
    examples_per_step: Count = 16
    """Examples of a step, of all processes together: groups, or pairs with --sampling pairs."""
    # CT section 5.2: up to 2,000 tokens. Replaces `examples_per_step`; a step has at least one question or pair.
    tokens_per_step: Count | None = None
    """Most tokens of a step, of all processes together: groups or pairs are added until the next would not fit."""
    accumulate: Count = 1
    """Number of batches into which each process divides its part of a step, to need less memory."""
    evaluate_every: Count = 500
    """Steps between two evaluations on dev."""
    save_every: Count = 100
    """Steps between two saved states, from which a killed run continues."""
    patience: Count | None = None
    """Number of evaluations without a gain after which the run stops."""
    learning_rate: Positive = 6e-5
    """Highest learning rate of the layers and embeddings."""
    fresh_learning_rate: Positive = 4e-4
    """Highest learning rate of classifiers and exits, new ones or the base's (default: scaled with --learning-rate)."""
    # The rate falls linearly to 0 behind it. CT section 5.2 has 4,000 steps.
    warmup: NotNegative = 0.05
    """Steps during which the learning rate rises; a number below 1 is a share of all steps."""
    decay: Annotated[bool, Parameter(parse=False)] = True
    """If False, the learning rate stays constant after the warm-up (TRMD's released code)."""
    # Matrices decay, biases and norms do not. A run that a version began which decayed them too keeps that rule.
    weight_decay: NotNegative = 0.01
    """Weight decay of AdamW."""
    clip: NotNegative = 1.0
    """Largest norm of a step's gradients; 0 for none."""
    dropout: Annotated[float, Parameter(validator=Number(gte=0, lt=1))] = 0.1
    """Dropout of the whole network."""
    # CT section 4.3.1 draws one. All jointly share one pass through the body, for hardly more work.
    stages: Literal["uniform", "in_turn", "joint"] = "uniform"
    """Stages (exits, and heads) that a step trains: one, drawn uniformly or taken in turn, or all jointly."""
    final_only: Annotated[Share, RECIPE_KEY] = 0.0
    """Share of the steps, from the first on, that train only the heads and no exits."""
    precision: Literal["fp32", "bf16"] = "bf16"
    """Precision of the forward pass in training."""
    # Chen et al., 2016: the input of each layer alone is in memory. The gradients are the same.
    gradient_checkpointing: Annotated[bool, Parameter(negative="--no-gradient-checkpointing")] = False
    """Compute layers again in the backward pass, which takes less memory and a third more work."""
    seed: Whole = 1
    """Random seed."""
    # A small data set would change the embeddings of its few words, and not those of other words.
    train_token_embeddings: Annotated[bool, RECIPE_KEY] = False
    """Train the token embeddings too."""
    planned: Annotated[int | None, Parameter(parse=False)] = None
    """The number of steps with which the run was begun; None stands for `steps`. `warmup` and `final_only` are shares
    of this number, so that the warm-up and the warm start do not move when the run is extended."""

    def __post_init__(self) -> None:
        """Raise ValueError, which names the setting, for a warm-up longer than the run."""
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
        if self.stages == "in_turn":
            return (step % stages,)
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
