"""The options that replace settings of a recipe, for `distil` and `grid`: one row of a table an option.

Values are checked here, before a base or data are loaded; an error names the option.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from cerberank_models.config import ExitConfig
from cerberank_training.data.sampling import NegativeSampling, PairSampling, Sampling
from cerberank_training.learning.strategies import STRATEGIES
from cerberank_training.learning.student_objective import COMPARES, SoftLoss
from cerberank_training.learning.train_config import TrainConfig
from cerberank_training.students.recipes import Recipe

Part = Literal["shape", "encoding", "objective", "negatives", "train"]


def numbers(text: str) -> tuple[float, ...]:
    """Numbers separated by commas, as options take them; raises ValueError."""
    return tuple(float(number) for number in text.split(","))


def _layers(text: str) -> tuple[ExitConfig, ...]:
    return tuple(ExitConfig(after=int(layer)) for layer in text.split(",") if layer)


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """An option that replaces `field` of one part of the recipe; each of its numbers is within `least` and `most`."""

    flag: str
    part: Part
    field: str
    help: str
    type: Callable[[str], Any] = str
    choices: tuple[Any, ...] | None = None
    least: float = -math.inf
    most: float = math.inf
    above: bool = False
    """Whether `least` itself is out of range."""
    below: bool = False
    """Whether `most` itself is out of range."""

    @property
    def dest(self) -> str:
        """The option's name among the arguments, and in a recipe's file."""
        return self.flag.removeprefix("--").replace("-", "_")

    def check(self, value: Any) -> None:
        """Raise ValueError, which names the option, for a number out of range."""
        for number in value if isinstance(value, tuple) else (value,):
            if not isinstance(number, int | float):
                continue
            low = number > self.least if self.above else number >= self.least
            high = number < self.most if self.below else number <= self.most
            if not (low and high and math.isfinite(number)):
                raise ValueError(f"{self.flag} is {number}; it must be {self._range()}")

    def _range(self) -> str:
        least = f"{'above' if self.above else 'at least'} {self.least:g}"
        most = f" and {'below' if self.below else 'at most'} {self.most:g}" if self.most < math.inf else ""
        return least + most


def _whole(flag: str, part: Part, field: str, help: str, least: int = 1) -> Option:
    return Option(flag=flag, part=part, field=field, help=help, type=int, least=least)


def _number(
    flag: str, part: Part, field: str, help: str, *, most: float = math.inf, above: bool = False, below: bool = False
) -> Option:
    """An option that takes a number from 0 on."""
    return Option(
        flag=flag, part=part, field=field, help=help, type=float, least=0, most=most, above=above, below=below
    )


def _per_head(flag: str, field: str, help: str, *, most: float = math.inf, above: bool = False) -> Option:
    """An option that takes a number from 0 on for all heads, or one for each."""
    help = f"{help}: one number, or one per head"
    return Option(flag=flag, part="objective", field=field, help=help, type=numbers, least=0, most=most, above=above)


def _choice(flag: str, part: Part, field: str, help: str, choices: tuple[Any, ...]) -> Option:
    return Option(flag=flag, part=part, field=field, help=help, type=type(choices[0]), choices=choices)


TYPES = ("shared", "fresh", "copied")
AFTER = "after which body layers, such as 2,4; '' for none"
SOFT = "how heads learn from teachers' scores: kl is the papers'; margin-mse and listwise compare candidates"
FRESH = "that of classifiers and exits; without it, --learning-rate changes it in the recipe's ratio"

OPTIONS = (
    _whole("--layers", "shape", "layers", "use only this many layers of the base, the first ones"),
    _whole("--body-layers", "shape", "body_layers", "b of B_b kH_h; the heads get the base's other layers", 0),
    _whole("--heads", "shape", "heads", "k of B_b kH_h", 0),
    Option(flag="--exits", part="shape", field="exits", help=AFTER, type=_layers),
    _whole("--max-length", "encoding", "max_length", "tokens of a pair", 8),
    _whole("--question-length", "encoding", "question_length", "most tokens of the question in a pair"),
    _choice("--segments", "encoding", "segments", "3: read the previous and the next sentence too", (2, 3)),
    _choice("--token-types", "shape", "token_types", "how a third type begins that the base lacks", TYPES),
    _choice("--strategy", "objective", "strategy", "which head learns from which teacher", STRATEGIES),
    _per_head("--alpha", "alpha", "weight of the labels", most=1),
    _per_head("--tau", "tau", "temperature", above=True),
    _choice("--soft-loss", "objective", "soft_loss", SOFT, get_args(SoftLoss)),
    _per_head("--lambda", "weights", "weights of the heads' losses"),
    _choice("--exits-learn", "objective", "exits", "what exits learn from", ("labels", "heads")),
    _number("--listwise", "objective", "listwise", "weight of the listwise loss; 0 in the papers"),
    _whole("--own", "negatives", "own", "negatives of a group from the question's own candidates", 0),
    _whole("--hard", "negatives", "hard", "negatives of the article that share rare words with the question", 0),
    _whole("--hard-pool", "negatives", "hard_pool", "how many such sentences --hard are drawn from", 0),
    _whole("--random", "negatives", "random", "other negatives of the article", 0),
    _whole("--steps", "train", "steps", "training steps at most"),
    _whole("--questions-per-step", "train", "questions_per_step", "groups of a step; with --sampling pairs, pairs"),
    _whole("--tokens-per-step", "train", "tokens_per_step", "take groups or pairs until a step has so many tokens"),
    _whole("--evaluate-every", "train", "evaluate_every", "steps between two evaluations on dev"),
    _whole("--save-every", "train", "save_every", "steps between two states that a killed run goes on from"),
    _whole("--patience", "train", "patience", "stop after so many evaluations without gain"),
    _number("--learning-rate", "train", "learning_rate", "the highest of pretrained weights", above=True),
    _number("--fresh-learning-rate", "train", "fresh_learning_rate", FRESH, above=True),
    _number("--warmup", "train", "warmup", "in which the rate rises: a share of the steps, or from 1 on steps"),
    _number("--weight-decay", "train", "weight_decay", "AdamW's"),
    _number("--clip", "train", "clip", "the largest norm of a step's gradients", above=True),
    _number("--dropout", "train", "dropout", "a probability, of the whole network", most=1, below=True),
    _choice("--stages", "train", "stages", "a step trains one stage, drawn uniformly, or all", ("uniform", "joint")),
    _number(
        "--final-only", "train", "final_only", "share of the steps, the first ones, that train heads alone", most=1
    ),
    _choice("--precision", "train", "precision", "of the forward pass in training", ("fp32", "bf16")),
    _whole("--seed", "train", "seed", "of new weights, order, drawn stages and dropout", 0),
)


NAMES = (*(option.dest for option in OPTIONS), "train_token_embeddings", "sampling", "unanswered")
"""The names of all options that replace settings of a recipe."""


def add_recipe_options(parser: argparse.ArgumentParser) -> None:
    """Add OPTIONS, and those that choose the sampling, as a group; what is not given is None."""
    changes = parser.add_argument_group("replace settings of the recipe")
    for option in OPTIONS:
        changes.add_argument(option.flag, dest=option.dest, type=option.type, choices=option.choices, help=option.help)
    words = "whether the embeddings of words learn"
    changes.add_argument("--train-token-embeddings", action=argparse.BooleanOptionalAction, help=words)
    mode = "a positive and negatives of each question (ours), or every pair once an epoch (the papers)"
    changes.add_argument("--sampling", choices=("grouped", "pairs"), help=mode)
    unanswered = "what --sampling pairs does with questions without a positive (default: drop)"
    changes.add_argument("--unanswered", choices=("keep", "drop"), help=unanswered)


def changed_recipe(recipe: Recipe, arguments: argparse.Namespace) -> Recipe:
    """The recipe with the settings that `arguments` give. Raises ValueError, which names the option."""
    changed = _changed(recipe, arguments)
    _check_whole(changed, arguments)
    return changed


def filled_recipe(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe with `values` by the options' names, such as `learning_rate`; options may replace them again.

    Raises ValueError, which names the option. Whether settings fit each other is left to `changed_recipe`.
    """
    arguments = argparse.Namespace(**dict.fromkeys(NAMES), groups=None)
    vars(arguments).update(values)
    return _changed(recipe, arguments)


def _changed(recipe: Recipe, arguments: argparse.Namespace) -> Recipe:
    given = {option: vars(arguments)[option.dest] for option in OPTIONS if vars(arguments)[option.dest] is not None}
    for option, value in given.items():
        option.check(value)

    def part(name: Part) -> dict[str, Any]:
        return {option.field: value for option, value in given.items() if option.part == name}

    encoding = recipe.shape.encoding.model_copy(update=part("encoding"))
    return replace(
        recipe,
        shape=replace(recipe.shape, **part("shape"), encoding=encoding),
        objective=replace(recipe.objective, **part("objective")),
        sampling=_sampling(recipe, part("negatives"), arguments),
        train=replace(recipe.train, **_train(recipe.train, part("train"), arguments)),
    )


def _train(train: TrainConfig, given: Mapping[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """The changes; a learning rate alone changes the fresh one in the recipe's ratio, a size of a step the other."""
    changes = dict(given)
    if "questions_per_step" in changes:
        if "tokens_per_step" in changes:
            raise ValueError("--questions-per-step and --tokens-per-step are two sizes of a step: give one")
        changes["tokens_per_step"] = None
    if arguments.train_token_embeddings is not None:
        changes["train_token_embeddings"] = arguments.train_token_embeddings
    if "learning_rate" in changes and "fresh_learning_rate" not in changes:
        ratio = train.fresh_learning_rate / train.learning_rate
        changes["fresh_learning_rate"] = ratio * changes["learning_rate"]
    return changes


def _sampling(recipe: Recipe, negatives: Mapping[str, int], arguments: argparse.Namespace) -> Sampling:
    have = recipe.sampling
    sized = any((arguments.questions_per_step, arguments.tokens_per_step, recipe.train.tokens_per_step))
    own = "pairs" if isinstance(have, PairSampling) else "grouped"
    mode = arguments.sampling or own
    if mode == "pairs":
        if negatives:
            flag = next(iter(negatives)).replace("_", "-")
            raise ValueError(f"--{flag} is for --sampling grouped: pairs are drawn whatever their question")
        if mode != own and not sized:
            raise ValueError("--sampling pairs needs --questions-per-step, which counts pairs then")
        kept = have.unanswered if isinstance(have, PairSampling) else False
        return PairSampling(unanswered=kept if arguments.unanswered is None else arguments.unanswered == "keep")
    if arguments.unanswered is not None:
        raise ValueError("--unanswered is for --sampling pairs: a group begins with a positive")
    if mode != own and not sized:
        raise ValueError("--sampling grouped needs --questions-per-step, which counts groups then")
    return replace(have if isinstance(have, NegativeSampling) else NegativeSampling(), **negatives)


def _check_whole(recipe: Recipe, arguments: argparse.Namespace) -> None:
    """Raise ValueError for settings that do not fit each other."""
    shape, objective = recipe.shape, recipe.objective
    for flag, values in (("--alpha", objective.alpha), ("--tau", objective.tau), ("--lambda", objective.weights)):
        if len(values) not in {1, shape.heads}:
            raise ValueError(f"{flag} has {len(values)} numbers; it takes one, or one for each of {shape.heads} heads")
    after = [exit_.after for exit_ in shape.exits]
    if after != sorted(set(after)) or (after and after[-1] > shape.body_layers):
        raise ValueError(f"--exits are {after}; they must be ascending and at most {shape.body_layers} (--body-layers)")
    if not shape.heads and not after:
        raise ValueError("--heads is 0 and --exits are none: nothing would score a pair")
    if (room := shape.encoding.max_length - 7) < shape.encoding.question_length:
        raise ValueError(f"--question-length must be at most --max-length - 7, which is {room}")
    drawn = ("sampling", "unanswered", "own", "hard", "hard_pool", "random")
    if arguments.groups and (given := [name for name in drawn if vars(arguments)[name] is not None]):
        raise ValueError(f"--{given[0].replace('_', '-')} is for --train: --groups were sampled beforehand")
    if arguments.soft_loss is not None and objective.strategy == "hard":
        raise ValueError("--soft-loss is for strategies with teachers, not for hard")
    pairs = isinstance(recipe.sampling, PairSampling) and not arguments.groups
    if pairs and objective.soft_loss in COMPARES:
        raise ValueError(
            f"--sampling pairs cannot go with --soft-loss {objective.soft_loss}, which compares the candidates of a "
            "question"
        )
    if pairs and objective.listwise:
        raise ValueError(
            f"--sampling pairs cannot go with the listwise loss (weight {objective.listwise:g}), which compares the "
            "candidates of a question; give --listwise 0"
        )
