"""`cerberank train recipes`: the recipes and the papers' presets, and all settings of one with their sources."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import reduce
from operator import getitem
from typing import Any

from cerberank_models.output import say
from cerberank_training.commands.presets import (
    DISTIL,
    WITHOUT_EFFECT,
    Preset,
    presets,
    read_preset,
    student_settings,
)
from cerberank_training.commands.train import distil_app


def recipes(name: str | None = None, /) -> list[Preset]:
    """List the recipes and the papers' presets, or show every setting of one with its source.

    Args:
        name: Recipe, preset, or TOML file that changes one (default: list all).
    """
    if name is None:
        width = max(map(len, presets()))
        # Ours first, because a paper's presets have a slash.
        listed = [presets()[each] for each in sorted(presets(), key=lambda each: ("/" in each, each))]
        for each in listed:
            line, _, _ = each.about.partition("\n")
            say(f"{each.name:<{width}}  {each.verb:<8}  {line}")
        return listed
    preset = read_preset(name)
    say(f"cerberank train {preset.verb} --recipe {name}: {preset.about}")
    ours = presets()[preset.recipe].settings if preset.recipe else {}
    shown = {key: setting for key, setting in preset.settings.items() if ours.get(key) != setting}
    if shown:
        # As lines of a TOML file, because some are keys of recipes and no options.
        lines = {f"{key} = {json.dumps(setting.value)}": setting.source for key, setting in shown.items()}
        wide = max(map(len, lines))
        for line, source in lines.items():
            say(f"{line:<{wide}}  # {source}" if source else line)
        say('A source that begins with "ours" says that the published value is not known here.')
    if preset.verb != DISTIL:
        say(f"Other options have the defaults of `cerberank train {preset.verb} --help`.")
        return [preset]
    if shown:
        say(f"All settings; those without a source above are of the recipe {preset.recipe}:")
    # By the names that options and keys have; values that are not set, or have no effect, are left out.
    settings = {"settings": asdict(student_settings(name))}
    values: dict[str, Any] = {}
    for option in distil_app.assemble_argument_collection():
        if option.parse and option.keys[:1] == ("settings",) and option.name.startswith("--"):
            values[option.name[2:].replace("-", "_")] = reduce(getitem, option.keys, settings)
    useless = {each for names, other, value, _ in WITHOUT_EFFECT if values[other] == value for each in names}
    for key, value in values.items():
        if value is not None and key not in useless:
            say(f"{key} = {json.dumps(value)}")
    return [preset]
