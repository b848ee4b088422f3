"""Options that replace a recipe's settings: each reaches its setting, and none with a bad value reaches a base."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from cerberank_training.commands import distil
from cerberank_training.commands.recipe_options import OPTIONS, Option, changed_recipe
from cerberank_training.data.sampling import NegativeSampling, PairSampling
from cerberank_training.students.recipes import RECIPES, Recipe

GIVEN = {
    **{"--layers": "4", "--body-layers": "9", "--heads": "2", "--exits": "1,9"},
    **{"--max-length": "99", "--question-length": "33", "--segments": "3", "--token-types": "copied"},
    **{"--strategy": "kd_sum", "--alpha": "0.1,1", "--tau": "5", "--lambda": "2,0", "--listwise": "0.5"},
    **{"--save-every": "17", "--clip": "0.7", "--exits-learn": "heads"},
    **{"--own": "5", "--hard": "2", "--hard-pool": "7", "--random": "4"},
    **{"--soft-loss": "mse"},
    **{"--steps": "123", "--questions-per-step": "5", "--evaluate-every": "6", "--patience": "9"},
    **{"--learning-rate": "1e-6", "--fresh-learning-rate": "1e-3", "--warmup": "0.1", "--weight-decay": "0"},
    **{"--dropout": "0.2", "--stages": "joint", "--final-only": "1", "--precision": "fp32", "--seed": "7"},
}
"""A value for each option, other than the recipe's."""


def arguments(*options: str, recipe: str = "electra-base-b11-3h1", source: str = "--train") -> argparse.Namespace:
    """The parsed options of `distil`."""
    needed = ["--recipe", recipe, "--base", "nowhere", source, "jsonl:x", "--dev", "jsonl:x", "--out", "out"]
    return distil.parser().parse_args([*needed, *options])


def changed(*options: str, recipe: str = "electra-base-b11-3h1", source: str = "--train") -> Recipe:
    return changed_recipe(RECIPES[recipe](), arguments(*options, recipe=recipe, source=source))


def setting(recipe: Recipe, option: Option) -> Any:
    parts = {"encoding": recipe.shape.encoding, "negatives": recipe.sampling}
    return getattr(parts.get(option.part) or getattr(recipe, option.part), option.field)


def test_every_option_reaches_its_setting_and_no_other() -> None:
    """All at once but the other size of a step: each setting has its option's value; with none, all is as it was."""
    assert set(GIVEN) | {"--tokens-per-step"} == {option.flag for option in OPTIONS}
    assert changed("--tokens-per-step", "99").train.tokens_per_step == 99
    assert changed("--questions-per-step", "5", recipe="roberta-base-cascade").train.tokens_per_step is None
    recipe, own = changed(*(part for pair in GIVEN.items() for part in pair)), RECIPES["electra-base-b11-3h1"]()
    for option in (option for option in OPTIONS if option.flag in GIVEN):
        value = setting(recipe, option)
        assert value == option.type(GIVEN[option.flag]), option.flag
        assert value != setting(own, option), option.flag
    assert changed() == own


@pytest.mark.parametrize(
    "option", [option for option in OPTIONS if option.choices is None and option.flag != "--exits"]
)
def test_a_value_out_of_range_names_its_option(option: Option) -> None:
    """On either side of the range, at its end where the end is excluded, and for numbers that are none."""
    bad = [option.least] if option.above else [option.least - 1]
    if option.most < float("inf"):
        bad.append(option.most if option.below else option.most + 1)
    if option.type is not int:
        bad += [float("nan"), float("inf")]
    for value in bad:
        text = str(int(value)) if option.type is int else str(value)
        with pytest.raises(ValueError, match=rf"^{option.flag} is .*; it must be "):
            changed(f"{option.flag}={text}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--alpha", "0.1,0.5"], "--alpha has 2 numbers; it takes one, or one for each of 3 heads"),
        (["--exits", "4,2"], "--exits are .4, 2."),
        (["--exits", "12"], "at most 11 .--body-layers."),
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
def test_settings_that_do_not_fit_each_other_are_refused(options: list[str], message: str) -> None:
    """The message names the option to change."""
    with pytest.raises(ValueError, match=message):
        changed(*options)


def test_sampled_groups_refuse_options_of_sampling() -> None:
    """They would have no effect."""
    for options in (["--hard-pool", "3"], ["--sampling", "grouped"]):
        with pytest.raises(ValueError, match=rf"^{options[0]} is for --train"):
            changed(*options, source="--groups")


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


def test_a_learning_rate_alone_keeps_the_recipes_ratio() -> None:
    """The paper's one rate stays one; the mini's ratio of 5 stays; a fresh rate that is given is taken as it is."""
    for recipe, options, rates in (
        ("electra-base-b11-3h1", ["--learning-rate", "1e-6"], (1e-6, 1e-6)),
        ("mini", ["--learning-rate", "1e-5"], (1e-5, 5e-5)),
        ("mini", ["--learning-rate", "1e-5", "--fresh-learning-rate", "3e-5"], (1e-5, 3e-5)),
        ("mini", ["--fresh-learning-rate", "3e-5"], (4e-5, 3e-5)),
    ):
        train = changed(*options, recipe=recipe).train
        assert (train.learning_rate, train.fresh_learning_rate) == pytest.approx(rates, rel=1e-12)
