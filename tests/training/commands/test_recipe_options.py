"""Options that replace a recipe's settings: each reaches its setting, and none with a bad value reaches a base."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from cyclopts import CycloptsError

from cerberank_models.commands.values import arguments_of
from cerberank_models.config import ExitConfig
from cerberank_training.commands.presets import read_recipe
from cerberank_training.commands.recipe_options import UNCHANGED, RecipeOptions, changed_recipe, flag_of
from cerberank_training.data.sampling import NegativeSampling, PairSampling
from cerberank_training.students.recipes import RECIPES, Recipe

ANSWERS = {
    "shape": {"layers": "4", "body_layers": "9", "heads": "2", "exits": "1,9", "token_types": "copied"},
    "encoding": {"max_length": "99", "question_length": "33", "segments": "3"},
    "objective": {
        **{"strategy": "kd_sum", "alpha": "0.1,1", "tau": "5", "soft_loss": "mse", "weights": "2,0"},
        **{"exits": "heads", "listwise": "0.5"},
    },
    "negatives": {"own": "5", "hard": "2", "hard_pool": "7", "random": "4"},
    "train": {
        **{
            "steps": "123",
            "questions_per_step": "5",
            "accumulate": "3",
            "evaluate_every": "6",
            "save_every": "17",
            "patience": "9",
        },
        **{"learning_rate": "1e-6", "fresh_learning_rate": "1e-3", "warmup": "0.1", "weight_decay": "0"},
        **{"clip": "0.7", "dropout": "0.2", "stages": "joint", "final_only": "1", "precision": "fp32", "seed": "7"},
    },
}
"""A value for each setting by its part, other than the recipe's."""
FLAGS = {("objective", "weights"): "--lambda", ("objective", "exits"): "--exits-learn"}
APART = {"tokens_per_step", "train_token_embeddings", "gradient_checkpointing", "truncation"}
"""Settings with tests of their own."""


def flag(part: str, field: str) -> str:
    return FLAGS.get((part, field)) or flag_of(field)


def options(*words: str) -> RecipeOptions:
    """The options of a call."""

    def command(*, changes: RecipeOptions = UNCHANGED) -> None:
        """A command with these options alone."""

    read: RecipeOptions = arguments_of(command, words).get("changes", UNCHANGED)
    return read


def changed(*words: str, recipe: str = "electra-base-b11-3h1", sampled: bool = False) -> Recipe:
    return changed_recipe(RECIPES[recipe](), options(*words), sampled=sampled)


def setting(recipe: Recipe, part: str, field: str) -> Any:
    parts = {"encoding": recipe.shape.encoding, "negatives": recipe.sampling}
    return getattr(parts.get(part) or getattr(recipe, part), field)


def as_text(value: Any) -> str:
    """A setting as its option is written."""
    if not isinstance(value, tuple):
        return str(value)
    return ",".join(str(item.after if isinstance(item, ExitConfig) else item) for item in value)


def test_every_option_reaches_its_setting_and_no_other() -> None:
    """All at once but the other size of a step: each setting has its option's value; with none, all is as it was."""
    for part, values in ANSWERS.items():
        assert {each.name for each in fields(getattr(UNCHANGED, part))} - APART == set(values)
    assert changed("--tokens-per-step", "99").train.tokens_per_step == 99
    assert changed("--questions-per-step", "5", recipe="roberta-base-cascade").train.tokens_per_step is None
    every = [(part, field, value) for part, values in ANSWERS.items() for field, value in values.items()]
    words = [word for part, field, value in every for word in (flag(part, field), value)]
    recipe, own = changed(*words), RECIPES["electra-base-b11-3h1"]()
    numbers = str.maketrans("", "", " ")
    for part, field, value in every:
        new = setting(recipe, part, field)
        kind = float if isinstance(new, float) else str
        items = zip(as_text(new).translate(numbers).split(","), value.split(","), strict=True)
        convert = float if isinstance(new, tuple) and field != "exits" else kind
        assert all(convert(got) == convert(expected) for got, expected in items), field
        assert new != setting(own, part, field), field
    assert changed() == own


@pytest.mark.parametrize(
    ("option", "values"),
    [
        *[(name, ["0", "2.5", "x"]) for name in ("--layers", "--question-length", "--steps", "--patience")],
        *[(name, ["-1"]) for name in ("--heads", "--own", "--seed", "--body-layers")],
        ("--max-length", ["7"]),
        *[(name, ["0", "nan", "inf", "-1"]) for name in ("--learning-rate", "--fresh-learning-rate", "--tau")],
        *[
            (name, ["-0.1", "nan", "inf"])
            for name in ("--warmup", "--weight-decay", "--clip", "--listwise", "--lambda")
        ],
        *[(name, ["-0.1", "1.1", "nan"]) for name in ("--alpha", "--final-only")],
        ("--dropout", ["1", "-0.1", "nan"]),
        ("--segments", ["4"]),
        ("--strategy", ["best"]),
    ],
)
def test_a_value_out_of_range_names_its_option(option: str, values: list[str]) -> None:
    """On either side of the range, at its end where the end is excluded, and values that are not numbers."""
    for value in values:
        with pytest.raises(CycloptsError, match=f"for {option}"):
            changed(f"{option}={value}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--alpha", "0.1,0.5"], "--alpha has 2 numbers; it takes one, or one for each of 3 heads"),
        (["--exits", "4,2"], "--exits are .4, 2."),
        (["--exits", "12"], "at most 11 .--body-layers."),
        (
            ["--truncation", "longest_first", "--question-length", "9"],
            "--question-length is for --truncation last_first",
        ),
        (["--max-length", "50"], "--question-length must be at most --max-length - 7, which is 43"),
        (["--sampling", "pairs"], "--sampling pairs needs --questions-per-step"),
        (["--questions-per-step", "8", "--tokens-per-step", "99"], "two sizes of a step"),
        (["--sampling", "pairs", "--questions-per-step", "8", "--own", "3"], "--own is for --sampling grouped"),
        (["--sampling", "pairs", "--questions-per-step", "8", "--listwise", "1"], "--sampling pairs .*--listwise 0"),
        (
            ["--sampling", "pairs", "--questions-per-step", "8", "--listwise", "0", "--soft-loss", "margin-mse"],
            "compares",
        ),
        (["--strategy", "hard", "--soft-loss", "mse"], "--soft-loss is for strategies with teachers"),
        (["--heads", "0"], "--heads is 0 and --exits are none"),
        (["--unanswered", "keep"], "--unanswered is for --sampling pairs"),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(words: list[str], message: str) -> None:
    """The message names the option to change."""
    with pytest.raises(ValueError, match=message):
        changed(*words)


def test_sampled_groups_refuse_options_of_sampling() -> None:
    """They would have no effect."""
    for words in (["--hard-pool", "3"], ["--sampling", "grouped"]):
        with pytest.raises(ValueError, match=rf"^{words[0]} is for --train"):
            changed(*words, sampled=True)


def test_a_recipes_own_listwise_loss_does_not_go_with_pairs() -> None:
    """`mini` has one: it must be switched off by name."""
    pairs = ("--sampling", "pairs", "--questions-per-step", "8")
    with pytest.raises(ValueError, match=r"listwise loss \(weight 1\)"):
        changed(*pairs, recipe="mini")
    assert changed(*pairs, "--listwise", "0", recipe="mini").sampling == PairSampling()


def test_sampling_and_embeddings() -> None:
    """Pairs with and without unanswered questions; word embeddings learn or not; negatives change one by one."""
    pairs = ("--sampling", "pairs", "--questions-per-step", "64")
    assert changed(*pairs, "--unanswered", "keep").sampling == PairSampling(unanswered=True)
    assert changed(*pairs).sampling == PairSampling(unanswered=False)
    assert changed("--own", "4").sampling == NegativeSampling(own=4, hard=0, random=0)
    assert not changed("--no-train-token-embeddings").train.train_token_embeddings
    assert changed("--train-token-embeddings", recipe="tiny").train.train_token_embeddings
    assert changed("--gradient-checkpointing").train.gradient_checkpointing


def test_the_longest_text_may_be_cut_instead_of_the_candidate() -> None:
    """Then no question is too long for a pair, because its length is not bounded by itself."""
    encoding = changed("--truncation", "longest_first", "--max-length", "50").shape.encoding
    assert (encoding.truncation, encoding.max_length) == ("longest_first", 50)
    assert changed().shape.encoding.truncation == "last_first"


def test_a_learning_rate_alone_keeps_the_recipes_ratio() -> None:
    """The paper's one rate stays one; the mini's ratio of 5 stays; a fresh rate that is given is taken as it is."""
    for recipe, words, rates in (
        ("electra-base-b11-3h1", ["--learning-rate", "1e-6"], (1e-6, 1e-6)),
        ("mini", ["--learning-rate", "1e-5"], (1e-5, 5e-5)),
        ("mini", ["--learning-rate", "1e-5", "--fresh-learning-rate", "3e-5"], (1e-5, 3e-5)),
        ("mini", ["--fresh-learning-rate", "3e-5"], (4e-5, 3e-5)),
    ):
        train = changed(*words, recipe=recipe).train
        assert (train.learning_rate, train.fresh_learning_rate) == pytest.approx(rates, rel=1e-12)


FILE = """
from = "electra-base-b11-3h1"
learning-rate = 2e-5
exits = [2, 4]
alpha = [0.1, 0.5, 1]
lambda = 2
exits_learn = "heads"
train_token_embeddings = false
sampling = "pairs"
questions_per_step = 64
listwise = 1.0
"""


def written(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


def test_a_file_changes_a_recipe_and_options_change_the_file(tmp_path: Path) -> None:
    """Every kind of value; the title says where it is from and what it changes; settings fit in the end."""
    named = read_recipe(written(tmp_path, FILE))
    start, recipe = RECIPES["electra-base-b11-3h1"](), named.recipe
    assert named.title.startswith(
        "mine.toml (from electra-base-b11-3h1: learning_rate 2e-05, exits 2,4, alpha 0.1,0.5,1,"
    )
    assert (recipe.train.learning_rate, recipe.train.fresh_learning_rate) == pytest.approx((2e-5, 2e-5))
    assert recipe.shape.exits == (ExitConfig(after=2), ExitConfig(after=4))
    assert (recipe.objective.alpha, recipe.objective.weights) == ((0.1, 0.5, 1.0), (2.0,))
    assert recipe.objective.exits == "heads"
    assert start.train.train_token_embeddings
    assert not recipe.train.train_token_embeddings
    assert recipe.sampling == PairSampling()
    with pytest.raises(ValueError, match="listwise loss"):
        changed_recipe(recipe, UNCHANGED)
    final = changed_recipe(recipe, options("--listwise", "0", "--learning-rate", "1e-6", "--steps", "9"))
    assert (final.train.learning_rate, final.train.steps, final.objective.listwise) == (1e-6, 9, 0.0)
    assert final.shape == recipe.shape
    assert read_recipe("mini").recipe == RECIPES["mini"]()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('from = "mini"\nlearning_rat = 1', "mine.toml: Unknown option: --learning-rat. Did you mean --learning-rate?"),
        ('from = "mini-hrad"', "mine.toml: from 'mini-hrad' is unknown, perhaps 'mini-hard'"),
        ("steps = 3", "mine.toml: `from` is missing"),
        ('from = "mini"\nsteps = 2.5', "mine.toml: Invalid value for --steps: takes a whole number, not '2.5'"),
        ('from = "mini"\nsteps = 0', 'mine.toml: Invalid value "0" for --steps. Must be >= 1'),
        ('from = "mini"\nsteps = true', "mine.toml: Invalid value for --steps: takes a whole number"),
        ('from = "mini"\nstrategy = "best"', 'mine.toml: Invalid value "best" for --strategy'),
        ('from = "mini"\ntrain_token_embeddings = 7', "mine.toml: Invalid value for --train-token-embeddings"),
        ("from = mini", "mine.toml: Invalid value"),
    ],
)
def test_what_a_file_cannot_say_is_refused_with_its_key(text: str, message: str, tmp_path: Path) -> None:
    """One line that names the file and the key."""
    with pytest.raises(ValueError, match=r"^--recipe ") as refused:
        read_recipe(written(tmp_path, text))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_unknown_recipes_are_refused() -> None:
    """With the nearest name, or the missing file."""
    with pytest.raises(ValueError, match="--recipe 'tinny' is unknown, perhaps 'tiny'; `cerberank train recipes`"):
        read_recipe("tinny")
    with pytest.raises(ValueError, match=r"--recipe nowhere.toml: No such file"):
        read_recipe("nowhere.toml")
