"""All options of `train teach`, which are the keys of a recipe too, and what a record binds. Importing loads no torch.

Annotations are evaluated here, because cyclopts reads those of `TrainConfig` in the modules of its subclasses.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from cerberank_models.commands.values import Count, DataSpec, Interval, NotNegative, Positive, at_least
from cerberank_models.convert.teacher_input import SPECIAL_TOKENS, TeacherInput
from cerberank_training.evaluation.dev_options import RECIPE_HELP, DevQuestions, Select, data_help
from cerberank_training.learning.student_settings import Context, ExampleOptions, Layers, TokenTypes
from cerberank_training.runs.settings import RunOptions, TrainConfig

TRAINING = Group("Training (the rate rises in the warm-up, then falls linearly to 0)", sort_key=1)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class TeacherConfig(TrainConfig):
    """The settings of a teacher's fine-tuning, which are options of `train teach`."""

    context: Context = False
    token_types: TokenTypes = "shared"
    max_length: Annotated[int, at_least(SPECIAL_TOKENS + 1)] = 128
    """Most tokens of a pair; the longest segments are cut."""
    layers: Layers | None = None
    # The paper has the cross entropy of each pair.
    loss: Literal["pointwise", "listwise", "both"] = "pointwise"
    """Loss: of each pair, between a question's candidates, or both."""
    steps: Count = 20_000
    examples_per_step: Count = 8
    learning_rate: Positive = 1e-5
    weight_decay: NotNegative = 0.0
    dropout: Annotated[float | None, Parameter(validator=Number(gte=0, lt=1))] = None
    """Dropout of hidden states and attention (default: the base's)."""
    evaluate_every: Interval = 250
    patience: Count | None = 50

    def __post_init__(self) -> None:
        """Raise ValueError, which names the option, for settings that do not fit each other."""
        TrainConfig.__post_init__(self)  # `super()` fails in a dataclass with slots
        if self.token_types != "shared" and not self.context:
            raise ValueError(f"--token-types {self.token_types} are for a teacher that reads context")

    @property
    def input(self) -> TeacherInput:
        """The rules by which a pair becomes the teacher's input."""
        return TeacherInput(max_length=self.max_length, context=self.context)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TeachOptions:
    """The options of `train teach`."""

    recipe: Annotated[str | None, Parameter(help=RECIPE_HELP)] = None
    base: str
    """Path or hub id of an encoder, or of a teacher to adapt."""
    train: Annotated[DataSpec, Parameter(help=data_help("Questions to train on"))]
    dev: DataSpec
    """Questions to choose weights by, as FORMAT:PATH."""
    dev_questions: DevQuestions = None
    select: Select = "map"
    out: Path
    """Folder of the teacher."""
    run: RunOptions = field(default_factory=RunOptions)
    examples: ExampleOptions = field(default_factory=ExampleOptions)
    training: Annotated[TeacherConfig, Parameter(group=TRAINING)] = field(default_factory=TeacherConfig)
