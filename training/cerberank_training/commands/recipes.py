"""`cerberank train recipes`: the recipes and the papers' presets, and all settings of one with their sources."""

from __future__ import annotations

import json

from cerberank_models.output import say
from cerberank_training.commands.presets import DISTIL, presets, read_preset, read_recipe
from cerberank_training.commands.recipe_options import flag_of
from cerberank_training.students.recipes import settings_of


def recipes(name: str | None = None, /) -> None:
    """List the recipes and the papers' presets, or show every setting of one with its source.

    Args:
        name: Recipe, preset, or TOML file that changes one (default: list all).
    """
    if name is None:
        width = max(map(len, presets()))
        for each, preset in sorted(presets().items()):
            line, _, _ = preset.about.partition("\n")
            say(f"{each:<{width}}  {preset.verb:<8}  {line}")
        return
    preset = read_preset(name)
    say(f"cerberank train {preset.verb} --recipe {name}: {preset.about}")
    shown = {flag_of(option): setting for option, setting in preset.settings.items()}
    if shown:
        wide = max(len(f"{flag} {json.dumps(setting.value)}") for flag, setting in shown.items())
        for flag, setting in shown.items():
            say(f"{f'{flag} {json.dumps(setting.value)}':<{wide}}  {setting.source}".rstrip())
        say('A source that begins with "ours" says that the published value is not known here.')
    if preset.verb != DISTIL:
        say(f"Other options have the defaults of `cerberank train {preset.verb} --help`.")
        return
    if shown:
        say(f"All settings; those without a source above are of the recipe {preset.recipe}:")
    for part, settings in settings_of(read_recipe(name).recipe, drawn=True).items():
        for setting, value in settings.items():
            say(f"{part}.{setting} = {json.dumps(value)}")
