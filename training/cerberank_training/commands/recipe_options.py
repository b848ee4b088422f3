"""The options that replace settings of a recipe.

A field of a class below is the setting of that name in the same part of a recipe. Ranges are checked when options are
read, before a base or data are loaded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

from cyclopts import CycloptsError, Group, Parameter
from cyclopts.validators import Number

from cerberank_models.commands.values import (
    Count,
    Integers,
    NotNegative,
    Positive,
    Share,
    Whole,
    arguments_of,
    listed,
    whole,
)
from cerberank_models.config import ExitConfig
from cerberank_models.convert.token_types import NewTypes
from cerberank_models.output import UsageError
from cerberank_training.data.sampling import NegativeSampling, PairSampling, Sampling
from cerberank_training.learning.strategies import Strategy
from cerberank_training.learning.student_objective import COMPARES, SoftLoss
from cerberank_training.learning.train_config import TrainConfig
from cerberank_training.students.recipes import Recipe

RECIPE = Group("Settings that replace the recipe's", sort_key=1)


@Parameter(name="*", group=RECIPE)
@dataclass(frozen=True, kw_only=True)
class ShapeOptions:
    """Settings of the student's network."""

    layers: Count | None = None
    """Number of the base's layers to use, counted from the first."""
    body_layers: Whole | None = None
    """Layers of the body that all heads share (b of B_b kH_h); each head gets the base's other layers."""
    heads: Whole | None = None
    """Number of heads (k of B_b kH_h)."""
    exits: Integers | None = None
    """Body layers with an exit after them, such as 2,4; "" for none."""
    token_types: Literal["shared"] | NewTypes | None = None
    """Token type of the context where the base has fewer than three: the last type (shared), a random row (fresh), a
    copy of the last row (copied), or a new random table (anew, as in SSP)."""


@Parameter(name="*", group=RECIPE)
@dataclass(frozen=True, kw_only=True)
class EncodingOptions:
    """Settings of the pairs that are read."""

    max_length: Annotated[int | None, whole(8)] = None
    """Most tokens of a pair."""
    truncation: Literal["last_first", "longest_first"] | None = None
    """Rule that cuts a pair of too many tokens: at the candidate's end (last_first), or at the ends of the longest
    texts (longest_first, as in the papers)."""
    question_length: Count | None = None
    """Most tokens of the question with --truncation last_first."""
    segments: Literal[2, 3] | None = None
    """Segments of a pair; 3 adds the previous and the next sentence."""


@Parameter(name="*", group=RECIPE)
@dataclass(frozen=True, kw_only=True)
class ObjectiveOptions:
    """Settings of the loss."""

    strategy: Strategy | None = None
    """Rule that assigns teachers to heads (docs/training.md)."""
    alpha: Annotated[tuple[float, ...] | None, listed(float, "0.1 or 0,0.5,1", within=Number(gte=0, lte=1))] = None
    """Weight of the labels against the teachers, 0 to 1: one number, or one per head (0.1 or 0,0.5,1)."""
    tau: Annotated[tuple[float, ...] | None, listed(float, "5 or 1,3,5", within=Number(gt=0, lt=math.inf))] = None
    """Temperature of the distillation: one number, or one per head (5 or 1,3,5)."""
    soft_loss: SoftLoss | None = None
    """Loss against the teachers' scores: kl is the papers'; margin-mse and listwise compare a question's candidates."""
    weights: Annotated[
        tuple[float, ...] | None,
        listed(float, "1 or 1,0,1", within=Number(gte=0, lt=math.inf)),
        Parameter(name="lambda"),
    ] = None
    """Weights of the heads' losses: one number, or one per head."""
    exits: Annotated[Literal["labels", "heads"] | None, Parameter(name="exits-learn")] = None
    """Targets of the exits: the labels, or the scores of the model's own heads."""
    listwise: NotNegative | None = None
    """Weight of the listwise loss on the labels; 0 in the papers."""


@Parameter(name="*", group=RECIPE)
@dataclass(frozen=True, kw_only=True)
class NegativeOptions:
    """Settings of the negatives of a group."""

    own: Whole | None = None
    """Number of negatives of a group from the question's own candidates."""
    hard: Whole | None = None
    """Number of negatives that share rare words with the question; from the article if there is one."""
    hard_pool: Whole | None = None
    """Number of sentences with the rarest shared words from which the --hard negatives are drawn."""
    random: Whole | None = None
    """Number of other negatives; from the article if there is one, else from the candidates."""


@Parameter(name="*", group=RECIPE)
@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """Settings of the training steps."""

    steps: Count | None = None
    """Most training steps."""
    questions_per_step: Count | None = None
    """Groups (with --sampling pairs: pairs) of a step, of all processes together."""
    tokens_per_step: Count | None = None
    """Most tokens of a step, of all processes together: groups or pairs are added until the next would not fit."""
    accumulate: Count | None = None
    """Number of batches into which each process divides its part of a step, to need less memory."""
    evaluate_every: Count | None = None
    """Steps between two evaluations on dev."""
    save_every: Count | None = None
    """Steps between two saved states, from which a killed run continues."""
    patience: Count | None = None
    """Number of evaluations without a gain after which the run stops."""
    learning_rate: Positive | None = None
    """Highest learning rate of the layers and embeddings."""
    fresh_learning_rate: Positive | None = None
    """Highest learning rate of classifiers and exits, new ones or the base's (default: scaled with --learning-rate)."""
    warmup: NotNegative | None = None
    """Steps during which the learning rate rises; a number below 1 is a share of all steps."""
    weight_decay: NotNegative | None = None
    """Weight decay of AdamW."""
    clip: NotNegative | None = None
    """Largest norm of a step's gradients; 0 for none."""
    dropout: Annotated[float | None, Parameter(validator=Number(gte=0, lt=1))] = None
    """Dropout of the whole network."""
    stages: Literal["uniform", "joint"] | None = None
    """Stages (exits, and heads) that a step trains: one, drawn uniformly, or all jointly."""
    final_only: Share | None = None
    """Share of the steps, from the first on, that train only the heads and no exits."""
    precision: Literal["fp32", "bf16"] | None = None
    """Precision of the forward pass in training."""
    gradient_checkpointing: Annotated[bool | None, Parameter(negative="--no-gradient-checkpointing")] = None
    """Compute layers again in the backward pass, which takes less memory and a third more work."""
    seed: Whole | None = None
    """Random seed."""
    train_token_embeddings: Annotated[bool | None, Parameter(negative="--no-train-token-embeddings")] = None
    """Train the token embeddings too."""


@Parameter(name="*", group=RECIPE)
@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """All options that replace settings of a recipe; an option that is not given is None."""

    shape: ShapeOptions = ShapeOptions()
    encoding: EncodingOptions = EncodingOptions()
    objective: ObjectiveOptions = ObjectiveOptions()
    negatives: NegativeOptions = NegativeOptions()
    train: StepOptions = StepOptions()
    sampling: Literal["grouped", "pairs"] | None = None
    """Examples of a step: groups of a question's candidates (ours), or every labelled pair once an epoch (papers)."""
    unanswered: Literal["keep", "drop"] | None = None
    """Questions without a positive in --sampling pairs: kept or left out (default: drop)."""

    def applied(self, recipe: Recipe) -> Recipe:
        """The recipe with these settings. Raises UsageError for two that exclude each other."""
        shape = given(self.shape)
        if "exits" in shape:
            shape["exits"] = tuple(ExitConfig(after=layer) for layer in shape["exits"])
        encoding = recipe.shape.encoding.model_copy(update=given(self.encoding))
        return replace(
            recipe,
            shape=replace(recipe.shape, **shape, encoding=encoding),
            objective=replace(recipe.objective, **given(self.objective)),
            sampling=self._sampling(recipe),
            train=replace(recipe.train, **self._steps(recipe.train)),
        )

    def _steps(self, train: TrainConfig) -> dict[str, Any]:
        """The changes; a learning rate alone changes the fresh one in the recipe's ratio."""
        changes = given(self.train)
        if "questions_per_step" in changes:
            if "tokens_per_step" in changes:
                raise UsageError("--questions-per-step and --tokens-per-step are two sizes of a step: give one.")
            changes["tokens_per_step"] = None
        if "learning_rate" in changes and "fresh_learning_rate" not in changes:
            ratio = train.fresh_learning_rate / train.learning_rate
            changes["fresh_learning_rate"] = ratio * changes["learning_rate"]
        return changes

    def _sampling(self, recipe: Recipe) -> Sampling:
        have, negatives, steps = recipe.sampling, given(self.negatives), self.train
        sized = any((steps.questions_per_step, steps.tokens_per_step, recipe.train.tokens_per_step))
        own = "pairs" if isinstance(have, PairSampling) else "grouped"
        mode = self.sampling or own
        if mode != own and not sized:
            unit = "pairs" if mode == "pairs" else "groups"
            raise UsageError(f"--sampling {mode} needs --questions-per-step, which counts {unit} then.")
        if mode == "pairs":
            if negatives:
                flag = flag_of(next(iter(negatives)))
                raise UsageError(f"{flag} is for --sampling grouped: pairs are drawn whatever their question.")
            kept = have.unanswered if isinstance(have, PairSampling) else False
            return PairSampling(unanswered=kept if self.unanswered is None else self.unanswered == "keep")
        if self.unanswered is not None:
            raise UsageError("--unanswered is for --sampling pairs: a group begins with a positive.")
        return replace(have if isinstance(have, NegativeSampling) else NegativeSampling(), **negatives)


UNCHANGED = RecipeOptions()


def given(part: Any) -> dict[str, Any]:
    """The options of a part that are given, by the names of the settings."""
    return {each.name: value for each in fields(part) if (value := getattr(part, each.name)) is not None}


def flag_of(name: str) -> str:
    """The option of a field.

    >>> flag_of("hard_pool")
    '--hard-pool'
    """
    return f"--{name.replace('_', '-')}"


def changed_recipe(recipe: Recipe, options: RecipeOptions, *, sampled: bool = False) -> Recipe:
    """The recipe with the settings that `options` give; `sampled` if groups were sampled beforehand.

    Raises UsageError, which names the option, for settings that do not fit each other.
    """
    changed = options.applied(recipe)
    _check_whole(changed, options, sampled=sampled)
    return changed


def _check_whole(recipe: Recipe, options: RecipeOptions, *, sampled: bool) -> None:
    shape, objective = recipe.shape, recipe.objective
    for flag, values in (("--alpha", objective.alpha), ("--tau", objective.tau), ("--lambda", objective.weights)):
        if len(values) not in {1, shape.heads}:
            raise UsageError(f"{flag} has {len(values)} numbers; it takes one, or one for each of {shape.heads} heads.")
    after = [exit_.after for exit_ in shape.exits]
    deepest = math.inf if shape.body_layers is None else shape.body_layers
    if after != sorted(set(after)) or (after and after[-1] > deepest):
        raise UsageError(f"--exits are {after}; they must be ascending and at most {deepest} (--body-layers).")
    if not shape.heads and not after:
        raise UsageError("--heads is 0 and --exits are none: nothing would score a pair.")
    longest_first = shape.encoding.truncation == "longest_first"
    if longest_first and options.encoding.question_length is not None:
        raise UsageError("--question-length is for --truncation last_first: the longest texts are cut, whichever.")
    if not longest_first and (room := shape.encoding.max_length - 7) < shape.encoding.question_length:
        raise UsageError(f"--question-length must be at most --max-length - 7, which is {room}.")
    drawn = {"sampling": options.sampling, "unanswered": options.unanswered} | given(options.negatives)
    if sampled and (names := [name for name, value in drawn.items() if value is not None]):
        raise UsageError(f"{flag_of(names[0])} is for --train: --groups were sampled beforehand.")
    if options.objective.soft_loss is not None and objective.strategy == "hard":
        raise UsageError("--soft-loss is for strategies with teachers, not for hard.")
    pairs = isinstance(recipe.sampling, PairSampling) and not sampled
    if pairs and objective.soft_loss in COMPARES:
        raise UsageError(
            f"--sampling pairs cannot go with --soft-loss {objective.soft_loss}, which compares the candidates of a "
            "question."
        )
    if pairs and objective.listwise:
        raise UsageError(
            f"--sampling pairs cannot go with the listwise loss (weight {objective.listwise:g}), which compares the "
            "candidates of a question; give --listwise 0."
        )


def options_of(values: Mapping[str, Any]) -> RecipeOptions:
    """The options with values by their names, read as on the command line. Raises UsageError, which names the option.

    >>> options_of({"steps": 20, "exits": [2, 4]}).shape.exits
    (2, 4)
    """

    def settings(*, changes: RecipeOptions = UNCHANGED) -> None:
        """A command with these options alone."""

    try:
        options: RecipeOptions = arguments_of(settings, as_words(values)).get("changes", UNCHANGED)
    except CycloptsError as error:
        raise UsageError(" ".join(str(error).split())) from error
    return options


def as_words(values: Mapping[str, Any]) -> list[str]:
    """Values of options, by the fields' names, as words of a shell.

    >>> as_words({"steps": 20, "exits": [2, 4]})
    ['--steps=20', '--exits=2,4']
    """

    def text(value: Any) -> str:
        return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

    return [f"{flag_of(key)}={text(value)}" for key, value in values.items()]
