"""The papers' settings as they were published, and files that change a recipe: options by name, each with its source.

`published/PAPER.toml` has a table for every preset of a paper, `PAPER/NAME`; a user's file is one such table:

    from = "cerberus/wikiqa"
    learning_rate = 2e-5
    exits = { value = [2, 4], source = "our own grid" }

`from` names the preset or recipe that the table changes, `verb` the command of a preset that changes none. All other
keys are options of the command.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from inspect import cleandoc
from pathlib import Path
from typing import Any

from cyclopts import App, CycloptsError
from cyclopts.argument import ArgumentCollection
from cyclopts.config import Dict

from cerberank_models.commands.values import arguments_of
from cerberank_models.output import UsageError
from cerberank_training.commands.recipe_options import UNCHANGED, RecipeOptions, as_words
from cerberank_training.commands.run_options import DevQuestions
from cerberank_training.runs.dev_set import Size
from cerberank_training.students.recipes import RECIPES, Recipe

FROM, VERB, ABOUT = "from", "verb", "about"
DISTIL = "distil"
INSTEAD = {"steps": ("epochs",), "epochs": ("steps",), "unanswered": ("sampling",)}
"""Options that replace each other: a preset's value is left out where the call gives one of the others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """The value of an option, and what states it."""

    value: Any
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """Options of a command by name. One of `train distil` changes a recipe of `students/recipes.py`."""

    name: str
    """The name for `--recipe`; of a file its name, with its changes."""
    verb: str
    about: str
    recipe: str = ""
    settings: Mapping[str, Setting]

    @property
    def values(self) -> dict[str, Any]:
        """The options' values."""
        return {name: setting.value for name, setting in self.settings.items()}


@cache
def presets() -> Mapping[str, Preset]:
    """All presets and recipes by name."""
    found = {
        name: Preset(name=name, verb=DISTIL, about=cleandoc(recipe.__doc__ or ""), recipe=name, settings={})
        for name, recipe in RECIPES.items()
    }
    for paper in ("tanda", "cerberus", "ct", "trmd", "ssp"):  # a preset is from one before it
        text = (files(__package__) / "published" / f"{paper}.toml").read_text(encoding="utf-8")
        for name, table in tomllib.loads(text).items():
            found[f"{paper}/{name}"] = _made(f"{paper}/{name}", table, found, f"{paper}/{name}: from")
    return found


def read_preset(text: str) -> Preset:
    """The preset or recipe of this name, or of this file. Raises ValueError, which names the file and its key."""
    if not text.endswith(".toml"):
        return _named(text, presets(), "--recipe")
    path = Path(text)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"--recipe {path}: {reason}") from error
    if not isinstance(table.get(FROM), str):
        raise ValueError(f"--recipe {path}: `from` is missing, the name of the recipe that it changes")
    made = _made(path.name, table, presets(), f"--recipe {path}: from")
    changes = ", ".join(f"{name} {_text(_setting(value).value)}" for name, value in _options(table).items())
    return replace(made, name=f"{path.name} (from {table[FROM]}{': ' if changes else ''}{changes})")


def preset_of(text: str, verb: str) -> Preset:
    """The preset of `text` for `train VERB`. Raises ValueError for an unknown one, and for another command's."""
    preset = read_preset(text)
    if preset.verb != verb:
        raise ValueError(f"--recipe {text} is for `train {preset.verb}`, not for `train {verb}`")
    return preset


def recipe_help(verb: str = DISTIL) -> str:
    """The help of `--recipe`."""
    names = (preset.name for preset in presets().values() if preset.verb == verb)
    return f"TOML file, or one of {', '.join(sorted(names))}."


@dataclass(frozen=True, slots=True)
class NamedRecipe:
    """A recipe, and the title by which records and cards name it."""

    title: str
    """Its name, or the file's name with the recipe that it starts from and the settings that it changes."""
    recipe: Recipe
    dev_questions: Size | None = None


def read_recipe(text: str) -> NamedRecipe:
    """The recipe of `train distil` with this name, or of this file. Raises ValueError, which names the key."""
    preset = preset_of(text, DISTIL)

    def settings(*, dev_questions: DevQuestions = None, changes: RecipeOptions = UNCHANGED) -> None:
        """A command with the options that a recipe may set."""

    try:
        given = arguments_of(settings, as_words(preset.values))
        recipe = given.get("changes", UNCHANGED).applied(RECIPES[preset.recipe]())
    except (CycloptsError, UsageError) as error:
        raise ValueError(f"--recipe {text}: {' '.join(str(error).split())}") from error
    return NamedRecipe(preset.name, recipe, given.get("dev_questions"))


def options_from_recipe(verb: str) -> Callable[[App, tuple[str, ...], ArgumentCollection], None]:
    """A configuration of cyclopts: options of `train VERB` that a call leaves out have the values of its `--recipe`."""

    def fill(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        given = {name.lstrip("-").replace("-", "_") for each in arguments if each.tokens for name in each.names}
        words = [token.value for each in arguments if "--recipe" in each.names for token in each.tokens]
        if not words:
            return
        preset = preset_of(words[0], verb)
        values = {name: value for name, value in preset.values.items() if not given.intersection(INSTEAD.get(name, ()))}
        Dict(values, source=f"recipe {words[0]}", use_commands_as_keys=False)(app, commands, arguments)

    return fill


def _named(name: str, known: Mapping[str, Preset], where: str) -> Preset:
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f", perhaps {near[0]!r}" if near else ""
    raise ValueError(f"{where} {name!r} is unknown{hint}; `cerberank train recipes` lists them")


def _made(name: str, table: Mapping[str, Any], known: Mapping[str, Preset], where: str) -> Preset:
    """The preset of a table, which has all settings of the one that it is from."""
    own = {option: _setting(value) for option, value in _options(table).items()}
    if FROM not in table:
        return Preset(name=name, verb=table[VERB], about=table[ABOUT], settings=own)
    start = _named(table[FROM], known, where)
    return replace(start, name=name, about=table.get(ABOUT, start.about), settings={**start.settings, **own})


def _options(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in table.items() if key not in (FROM, VERB, ABOUT)}


def _setting(value: Any) -> Setting:
    return Setting(**value) if isinstance(value, dict) and set(value) <= {"value", "source"} else Setting(value=value)


def _text(value: Any) -> str:
    return as_words({"x": value})[0].partition("=")[2]
