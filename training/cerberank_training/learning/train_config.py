"""The schedule of a training run: its steps, the stages that they train, the learning rates."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any, Literal


def ramp_steps(warmup: float, steps: int) -> float:
    """The steps in which a learning rate rises: `warmup` is a share of the `steps`, or from 1 on their number.

    Raises ValueError for a warm-up below 0 or longer than the run.
    """
    ramp = warmup if warmup >= 1 else warmup * steps
    if not warmup >= 0 or ramp > max(1, steps):
        raise ValueError(f"warmup {warmup:g} does not fit into steps {steps}: give another of either")
    return ramp


FREE = ("steps", "patience", "save_every", "planned", "gradient_checkpointing")
"""The settings that a run may be continued with other values of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """All settings that determine the result of a run, apart from its data and objective."""

    steps: int
    questions_per_step: int = 16
    tokens_per_step: int | None = None
    """Take questions, or pairs, until a further one would make the step's pairs longer than so many tokens, instead of
    `questions_per_step` (CT section 5.2: up to 2,000). A step has one at least, all processes together."""
    accumulate: int = 1
    """The number of batches that each process divides its part of a step into; their gradients are added up."""
    learning_rate: float = 6e-5
    fresh_learning_rate: float = 4e-4
    """The learning rate of classifiers and exits, which start from random weights unless the base has them."""
    warmup: float = 0.05
    """The part of the run in which the learning rate rises linearly, before it falls linearly to 0: a share of the
    steps below 1, a number of steps from 1 on (CT section 5.2: 4,000).
    """
    decay: bool = True
    """False: after the warm-up the learning rate stays (TRMD's released code)."""
    weight_decay: float = 0.01
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
    """Keep the input of each layer alone, and compute the layer again in the backward pass (Chen et al., 2016): the
    same gradients with less memory, for a step that takes a third longer."""
    precision: str = "bf16"
    evaluate_every: int = 500
    patience: int | None = None
    """Stop after so many evaluations on dev without improvement."""
    save_every: int = 100
    seed: int = 1
    planned: int | None = None
    """The steps with which a run was begun that now has more: `warmup` and `final_only` are shares of these, so that
    its warm-up and warm start stay where they were. None for a run that was not extended."""

    def __post_init__(self) -> None:
        """Raises ValueError, which names the setting, for a step without a batch, and a warm-up beyond the run."""
        if self.accumulate < 1:
            raise ValueError(f"accumulate must be at least 1, not {self.accumulate}")
        ramp_steps(self.warmup, self.planned or self.steps)

    @property
    def warm_start(self) -> float:
        """The steps that train the heads alone."""
        return self.final_only * (self.planned or self.steps)

    def trained(self, step: int, stages: int) -> tuple[int, ...]:
        """The stages that `step` trains, from the seed and the step alone (every process draws the same)."""
        if step < self.warm_start:
            return (stages - 1,)
        if self.stages == "joint":
            return tuple(range(stages))
        return (random.Random(f"{self.seed}/stage/{step}").randrange(stages),)

    def all_trained(self, step: int) -> bool:
        """True if exits have been trained by `step`; before, weights are not the best, because exits are random."""
        return self.final_only >= 1.0 or step > self.warm_start

    def rate(self, step: int) -> float:
        """The factor of the learning rates at `step`: it rises over `warmup` and falls to 0 at the last step.

        In a run that was extended it falls anew, from where this line has it at the first step of the extension.
        """
        ramp = max(1.0, ramp_steps(self.warmup, self.planned or self.steps))
        rising = (step + 1) / ramp
        return min(rising, (self.steps - step) / max(1.0, self.steps - ramp)) if self.decay else min(rising, 1.0)


def bound_settings(config: TrainConfig) -> dict[str, Any]:
    """The settings with which a run that was begun must go on; one batch a step is left out, as it always was."""
    one = ("accumulate",) if config.accumulate == 1 else ()
    return {name: value for name, value in asdict(config).items() if name not in (*FREE, *one)}
