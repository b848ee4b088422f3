"""All options of `train distil` and `train teach`, which are keys of a recipe too, and what a record binds.

Importing them loads no torch. Annotations are evaluated here, because cyclopts reads those of `TrainConfig` in the
modules of its subclasses.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from cerberank_models.commands.values import (
    RECIPE_KEY,
    Count,
    DataSpec,
    Integers,
    Interval,
    NotNegative,
    OnnxForms,
    Positive,
    Share,
    Whole,
    at_least,
    data_help,
    listed,
)
from cerberank_models.config import EncodingConfig, ExitConfig, NewTypes
from cerberank_models.convert.teacher_input import SPECIAL_TOKENS, TeacherInput
from cerberank_models.output import UsageError
from cerberank_models.windows import Reading
from cerberank_training.data.sampling import ExampleOptions
from cerberank_training.evaluation.question_metrics import METRICS
from cerberank_training.learning.strategies import Choice, lessons
from cerberank_training.runs.settings import RECIPE_HELP, DevQuestions, RunOptions, TrainConfig


def _check_metric(type_: Any, name: str) -> None:
    if name not in METRICS:
        raise ValueError(f"Choose from {', '.join(METRICS)}.")


Select = Annotated[
    str, Parameter(help=f"Metric on dev to choose weights by: {', '.join(METRICS)}.", validator=_check_metric)
]

RESULT = Group("Evaluation and result", sort_key=5)

Layers = Annotated[Count, Parameter(help="Layers of the base to use, from the first (default: all).")]
Context = Annotated[bool, Parameter(help="Read the previous and the next sentence too (SSP).")]
TokenTypes = Annotated[
    Literal["shared"] | NewTypes,
    Parameter(
        help="Token type of the context where the base has fewer than three: the last type (shared), a random row "
        "(fresh), a copy of the last row (copied), or a new random table (anew, as in SSP)."
    ),
]
TeacherLoss: TypeAlias = Literal["kl", "mse", "margin-mse", "listwise"]
COMPARES: tuple[TeacherLoss, ...] = ("margin-mse", "listwise")
"""The losses that compare the candidates of a question."""


@Parameter(name="*", group=Group("Network", sort_key=1))
@dataclass(frozen=True, kw_only=True, slots=True)
class StudentShape:
    """`B_b kH_h` with exits, and what it reads, as options of `train distil`.

    The depth n = b + h is that of the base, or `layers` if it is set.
    """

    name: Annotated[str, Parameter(parse=False)] = "student"
    layers: Layers | None = None
    # None takes the depth of a checkpoint; for other bases all layers but one for the heads (`fitted`).
    body_layers: Whole | None = None
    """Layers that all heads share (b of B_b kH_h)."""
    heads: Whole = 1
    """Number of heads (k of B_b kH_h)."""
    exits: Integers = ()
    """Body layers with an exit, such as 2,4, or none."""
    exit_pooling: Annotated[Literal["mean", "first"], RECIPE_KEY] = "mean"
    """Vector that exits read: the mean of the tokens, or the first token."""
    # None takes those of a checkpoint's exits at these places (`fitted`).
    exit_token_features: Annotated[Whole | None, RECIPE_KEY] = None
    """Number of features of single tokens whose mean exits read too, such as 32 (default: the base's, or 0 as in the
    paper)."""
    # `shared` adds no type, and the third segment has the last one.
    token_types: Annotated[TokenTypes, RECIPE_KEY] = "shared"
    max_length: Annotated[int, at_least(8)] = 128
    """Most tokens of a pair."""
    truncation: Annotated[Literal["last_first", "longest_first"], RECIPE_KEY] = "last_first"
    """Rule that cuts a pair of too many tokens: at the candidate's end (last_first), or at the ends of the longest
    texts (longest_first, as in the papers)."""
    question_length: Count = 48
    """Most tokens of the question."""
    windows: Reading = "best"
    """Long candidates: the best or the mean score of their windows, or cut (off)."""
    context: Context = False

    @property
    def exit_configs(self) -> tuple[ExitConfig, ...]:
        """The exits as the network has them."""
        features = self.exit_token_features or 0
        return tuple(
            ExitConfig(after=after, pooling=self.exit_pooling, token_features=features) for after in self.exits
        )

    @property
    def encoding(self) -> EncodingConfig:
        """The rules by which texts become a pair. Raises ValidationError if the question leaves no room."""
        longest_first = self.truncation == "longest_first"
        return EncodingConfig(
            max_length=self.max_length,
            truncation=self.truncation,
            # The longest text is cut, whichever it is, and the question's own bound is ignored.
            question_length=min(self.question_length, self.max_length - 7) if longest_first else self.question_length,
            segments=3 if self.context else 2,
            windows=self.windows,
        )


@Parameter(name="*", group=Group("Losses", sort_key=2))
@dataclass(frozen=True, kw_only=True, slots=True)
class StudentObjective:
    """The losses of heads and exits, which are options of `train distil`.

    A tuple has one value for all heads, or one for each head.
    """

    strategy: Choice | None = None
    """One head's loss with several teachers: of all, of one in turn, or of their mean."""
    alpha: Annotated[tuple[float, ...], listed(float, "0.1 or 0,0.5,1", within=Number(gte=0, lte=1))] = (0.5,)
    """Weight of the labels, 0 to 1; or one per head."""
    tau: Annotated[tuple[float, ...], listed(float, "5 or 1,3,5", within=Number(gt=0, lt=math.inf))] = (3.0,)
    """Temperature of teachers; or one per head."""
    # `mse` and `margin-mse` have no temperature.
    teacher_loss: TeacherLoss = "kl"
    """Loss against the teachers' scores; kl is the papers'."""
    weights: Annotated[
        tuple[float, ...],
        listed(float, "1 or 1,0,1", within=Number(gte=0, lt=math.inf)),
        Parameter(name="lambda"),
        RECIPE_KEY,
    ] = (1.0,)
    """Weights of the heads' losses: one number, or one per head."""
    # CT: the labels. From the heads they learn with the settings of head 1, which is in no paper.
    exits: Annotated[Literal["labels", "heads"], Parameter(name="exits-learn")] = "labels"
    """Targets of the exits: labels, or the heads' scores."""
    listwise_weight: NotNegative = 0.0
    """Weight of the listwise loss on the labels."""

    def lesson(self, head: int, heads: int, teachers: Sequence[object]) -> tuple[object, ...]:
        """All that determines the loss of one of the `heads` with given logits; the same if they learn the same."""
        pairs = lessons(self.strategy, step=0, heads=heads, teachers=len(teachers))
        taught = [teachers[teacher] for of, teacher in pairs if of == head]
        return (
            of_head(self.weights, head),
            *((taught, of_head(self.alpha, head), of_head(self.tau, head)) if taught else ()),
        )


def of_head(values: tuple[float, ...], head: int) -> float:
    """The value of a head, or the one that all heads have."""
    return values[head if len(values) > 1 else 0]


@Parameter(name="*", group=Group("Steps and optimiser", sort_key=4))
@dataclass(frozen=True, kw_only=True, slots=True)
class StudentConfig(TrainConfig):
    """The settings of a student's training, with stages, and a rate of its own for the parts on top of the body."""

    # CT section 5.2: up to 2,000 tokens. Replaces `examples_per_step`; a step has at least one question or pair.
    tokens_per_step: Annotated[Count | None, RECIPE_KEY] = None
    """Most tokens of a step, of all processes together: groups or pairs are added until the next would not fit."""
    fresh_learning_rate: Positive = 4e-4
    """Highest rate of classifiers and exits (default: scaled with --learning-rate)."""
    dropout: Annotated[float, Parameter(validator=Number(gte=0, lt=1))] = 0.1
    """Dropout of the whole network."""
    # CT section 4.3.1 draws one. All jointly share one pass through the body, for hardly more work.
    stages: Annotated[Literal["uniform", "in_turn", "joint"], RECIPE_KEY] = "uniform"
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
        return self.final_only * self.steps

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


@Parameter(name="*", show_default=False)
@dataclass(frozen=True, kw_only=True, slots=True)
class StudentSettings:
    """Everything that determines a student apart from its base, data and teachers."""

    shape: StudentShape = field(default_factory=StudentShape)
    objective: StudentObjective = field(default_factory=StudentObjective)
    examples: ExampleOptions = field(default_factory=ExampleOptions)
    train: StudentConfig = field(default_factory=StudentConfig)

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
        shape = {name: value for name, value in asdict(self.shape).items() if name != "name"}
        objective = asdict(self.objective) | {"strategy": strategy}
        settings = {"shape": shape, "objective": objective, "train": self.train.bound}
        return settings | ({"examples": asdict(self.examples)} if drawn else {})


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DistilOptions:
    """The options of `train distil`."""

    recipe: Annotated[str, Parameter(help=RECIPE_HELP)]
    base: str
    """Encoder, cross-encoder or checkpoint: folder or hub id."""
    train: Annotated[DataSpec | None, Parameter(help=data_help("Questions to train on"))] = None
    groups: DataSpec | None = None
    """Groups of `data sample`, instead of --train."""
    dev: DataSpec
    """Questions that choose the weights."""
    teacher: tuple[Path, ...] = ()
    """Teacher: folder or hub id of a model, or the cache of its scores that `data score` made; repeat for several."""
    out: Path
    """Folder of the run, with OUT/checkpoint."""
    run: RunOptions = field(default_factory=RunOptions)
    dev_questions: Annotated[DevQuestions, Parameter(group=RESULT)] = None
    select: Annotated[Select, Parameter(group=RESULT)] = "map"
    forms: Annotated[OnnxForms | None, Parameter(group=RESULT)] = None
    """ONNX forms beside the weights, or none (default: fp32,int8)."""
    name: Annotated[str | None, Parameter(group=RESULT)] = None
    """Name of the model in stores and services (default: the name of OUT)."""
    version: Annotated[str | None, Parameter(group=RESULT)] = None
    """Version in stores and services (default: strategy, steps, seed and a digest of the run)."""
    terms: Annotated[str | None, Parameter(group=RESULT)] = None
    """Licence and terms of the data: text, or a file."""
    settings: StudentSettings = field(default_factory=StudentSettings)

    @property
    def training(self) -> StudentConfig:
        """The settings of the loop."""
        return self.settings.train


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
