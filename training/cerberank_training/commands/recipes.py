"""`cerberank train recipes`: the recipes, and all settings of one."""

from __future__ import annotations

import json

from cerberank_models.output import say
from cerberank_training.commands.recipe_options import read_recipe
from cerberank_training.students.recipes import RECIPES, settings_of


def recipes(name: str | None = None, /) -> None:
    """List the recipes, or show every setting of one.

    Args:
        name: Recipe, or TOML file that changes one (default: list all).
    """
    if name is None:
        width = max(map(len, RECIPES))
        for each, recipe in sorted(RECIPES.items()):
            say(f"{each:<{width}}  {(recipe.__doc__ or '').partition(chr(10))[0]}")
        return
    for part, settings in settings_of(read_recipe(name).recipe, drawn=True).items():
        for setting, value in settings.items():
            say(f"{part}.{setting} = {json.dumps(value)}")
