"""All settings of a student: the options of `train distil`, the keys of a recipe, and what a run's record binds."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from cyclopts import Parameter

from cerberank_models.output import UsageError
from cerberank_training.data.sampling import Sampling
from cerberank_training.learning.example_options import ExampleOptions
from cerberank_training.learning.student_objective import COMPARES, StudentObjective
from cerberank_training.runner.train_config import StudentConfig, bound_settings
from cerberank_training.students.shape import StudentShape


@Parameter(name="*", show_default=False)
@dataclass(frozen=True, kw_only=True, slots=True)
class StudentSettings:
    """Everything that determines a student apart from its base, data and teachers."""

    shape: StudentShape = field(default_factory=StudentShape)
    objective: StudentObjective = field(default_factory=StudentObjective)
    examples: ExampleOptions = field(default_factory=ExampleOptions)
    train: StudentConfig = field(default_factory=StudentConfig)

    @property
    def sampling(self) -> Sampling:
        """The rule by which examples are drawn."""
        return self.examples.chosen()

    def check(self, *, sampled: bool) -> None:
        """Raise UsageError, which names the option, for settings that do not fit each other.

        `sampled` is true if groups were sampled beforehand.
        """
        shape, objective = self.shape, self.objective
        # 1. One value for each head.
        for flag, values in (("--alpha", objective.alpha), ("--tau", objective.tau), ("--lambda", objective.weights)):
            if len(values) not in {1, shape.heads}:
                raise UsageError(
                    f"{flag} has {len(values)} numbers; it takes one, or one for each of {shape.heads} heads."
                )
        # 2. The network has a score, and exits in its body.
        after = list(shape.exits)
        deepest = math.inf if shape.body_layers is None else shape.body_layers
        if after != sorted(set(after)) or (after and after[-1] > deepest):
            raise UsageError(f"--exits are {after}; they must be ascending and at most {deepest} (--body-layers).")
        if not shape.heads and not after:
            raise UsageError("--heads is 0 and --exits are none: nothing would score a pair.")
        # 3. A question leaves room for a candidate.
        if shape.truncation == "last_first" and (room := shape.max_length - 7) < shape.question_length:
            raise UsageError(f"--question-length must be at most --max-length - 7, which is {room}.")
        # 4. Single pairs are not compared with others of their question.
        if sampled or self.examples.sampling == "grouped":
            return
        if objective.teacher_loss in COMPARES:
            raise UsageError(
                f"--sampling pairs cannot go with --teacher-loss {objective.teacher_loss}, which compares the "
                "candidates of a question."
            )
        if objective.listwise_weight:
            raise UsageError(
                f"--sampling pairs cannot go with the listwise loss (weight {objective.listwise_weight:g}), which "
                "compares the candidates of a question; give --listwise-weight 0."
            )

    def bound(self, *, drawn: bool, strategy: str | None) -> dict[str, Any]:
        """The settings that determine a run's result, with the name of its strategy.

        The sampling is included if groups are `drawn` in the run.
        """
        shape = self.shape
        return {
            "shape": {
                **{name: getattr(shape, name) for name in ("body_layers", "heads", "layers", "token_types")},
                "exits": [exit_.model_dump() for exit_ in shape.exit_configs],
            },
            "encoding": shape.encoding.model_dump(),
            "objective": asdict(self.objective) | {"strategy": strategy},
            **({"sampling": {"mode": self.examples.sampling} | asdict(self.sampling)} if drawn else {}),
            "train": bound_settings(self.train),
        }
