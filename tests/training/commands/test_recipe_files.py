"""A recipe from a file: its settings, what the command line replaces, and what is refused."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from cerberank_models.config import ExitConfig
from cerberank_training.commands.recipe_files import read_recipe
from cerberank_training.commands.recipe_options import add_recipe_options, changed_recipe
from cerberank_training.data.sampling import PairSampling
from cerberank_training.students.recipes import RECIPES

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
    parser = argparse.ArgumentParser()
    add_recipe_options(parser)

    def changed(*options: str) -> object:
        return changed_recipe(recipe, argparse.Namespace(**vars(parser.parse_args(options)), groups=None))

    with pytest.raises(ValueError, match="listwise loss"):
        changed()
    final = changed_recipe(
        recipe,
        argparse.Namespace(
            **vars(parser.parse_args(["--listwise", "0", "--learning-rate", "1e-6", "--steps", "9"])), groups=None
        ),
    )
    assert (final.train.learning_rate, final.train.steps, final.objective.listwise) == (1e-6, 9, 0.0)
    assert final.shape == recipe.shape
    assert read_recipe("mini").recipe == RECIPES["mini"]()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('from = "mini"\nlearning_rat = 1', "mine.toml: 'learning_rat' is no setting, perhaps 'learning_rate'"),
        ('from = "mini-hrad"', "mine.toml: from 'mini-hrad' is unknown, perhaps 'mini-hard'"),
        ("steps = 3", "mine.toml: `from` is missing"),
        ('from = "mini"\nsteps = 2.5', "mine.toml: --steps: invalid"),
        ('from = "mini"\nsteps = 0', "mine.toml: --steps is 0; it must be at least 1"),
        ('from = "mini"\nsteps = true', "mine.toml: steps cannot be True"),
        ('from = "mini"\nstrategy = "best"', "mine.toml: --strategy: invalid choice: 'best'"),
        ('from = "mini"\ntrain_token_embeddings = 1', "mine.toml: train_token_embeddings cannot be 1"),
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
    with pytest.raises(ValueError, match="--recipe 'tinny' is unknown, perhaps 'tiny'; known are "):
        read_recipe("tinny")
    with pytest.raises(ValueError, match=r"--recipe nowhere.toml: No such file"):
        read_recipe("nowhere.toml")
