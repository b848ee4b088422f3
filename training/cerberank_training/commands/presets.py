"""Recipes: options of a command by name, each with its source if a paper states it.

`recipes.toml` has ours, a table for each. A package beside this one adds its own in files `recipes/PAPER.toml`, whose
tables are the presets `PAPER/NAME`. A user's file is one such table:

    from = "cerberus/wikiqa"
    learning_rate = 2e-5
    exits = { value = [2, 4], source = "our own grid" }

`from` names the recipe that the table changes, `verb` the command of a recipe that changes none. All other keys are
options of the command. Options of a call change a recipe as the keys of a table do (`with_changes`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from cyclopts import App, CycloptsError
from cyclopts.argument import ArgumentCollection
from cyclopts.config import Dict

from cerberank_models.commands.values import arguments_of, error_message
from cerberank_models.output import UsageError
from cerberank_training.data.sampling import ExampleOptions
from cerberank_training.learning.settings import StudentSettings, StudentShape
from cerberank_training.learning.strategies import INFERRED
from cerberank_training.runs.settings import DevQuestions

FROM, VERB, ABOUT = "from", "verb", "about"
DISTIL = "distil"
SAMPLING = tuple(each.name for each in fields(ExampleOptions))
"""The options of sampling; those behind the first two are for groups."""
REPLACED_BY = {
    "steps": ("epochs",),
    "epochs": ("steps",),
    "unanswered": ("sampling",),
    "tokens_per_step": ("examples_per_step",),
}
"""Options that replace each other: a recipe's value is left out where a call or a file gives one of the others."""
WITHOUT_EFFECT = (
    (SAMPLING[2:], "sampling", "pairs", "is for --sampling grouped: pairs are drawn whatever their question."),
    (("unanswered",), "sampling", "grouped", "is for --sampling pairs: a group begins with a positive."),
    (
        ("question_length",),
        "truncation",
        "longest_first",
        "has no effect where a recipe cuts the longest texts (`truncation`), whichever they are.",
    ),
)
"""Options that have no effect where another option has some value, with the reason for users."""
DEFAULTS = {"sampling": ExampleOptions().sampling, "truncation": StudentShape().truncation}
"""The defaults of these other options."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """The value of an option, and what states it."""

    value: Any
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """A recipe, ours or a paper's preset: options of a command by name."""

    name: str
    """The name for `--recipe`; of a file its name, with its changes."""
    verb: str
    about: str
    recipe: str = ""
    """Our recipe that this one changes; a recipe of ours names itself. Empty for presets of other commands."""
    settings: dict[str, Setting]

    @property
    def values(self) -> dict[str, Any]:
        """The options' values."""
        return {name: setting.value for name, setting in self.settings.items()}


@cache
def presets() -> Mapping[str, Preset]:
    """All recipes and presets by name."""
    here = Path(__file__).parent
    tables = tomllib.loads((here / "recipes.toml").read_text(encoding="utf-8"))
    ours = set(tables)
    for path in here.parents[1].glob("cerberank_*/recipes/*.toml"):
        papers = tomllib.loads(path.read_text(encoding="utf-8"))
        tables |= {f"{path.stem}/{name}": table for name, table in papers.items()}
    known: dict[str, Preset] = {}
    starts = {name: [table[FROM]] if FROM in table else [] for name, table in tables.items()}
    for name in TopologicalSorter(starts).static_order():  # a preset comes after the one that it is from
        preset = _preset(name, tables[name], known, f"{name}: from")
        known[name] = replace(preset, recipe=name) if name in ours else preset
    return known


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
    try:
        preset = _preset(path.name, table, presets(), f"--recipe {path}: from")
    except UsageError as error:
        raise ValueError(f"--recipe {path}: {error}") from error
    changes = ", ".join(f"{name} {option_text(_setting(value).value)}" for name, value in _options(table).items())
    return replace(preset, name=f"{path.name} (from {table[FROM]}{': ' if changes else ''}{changes})")


def preset_of(text: str, verb: str) -> Preset:
    """The preset of `text` for `train VERB`. Raises ValueError for an unknown one, and for another command's."""
    preset = read_preset(text)
    if preset.verb != verb:
        raise ValueError(f"--recipe {text} is for `train {preset.verb}`, not for `train {verb}`")
    return preset


def student_settings(text: str) -> StudentSettings:
    """The settings of the recipe of `train distil` with this name, or of this file.

    Raises ValueError, which names the file and its key.
    """
    preset = preset_of(text, DISTIL)

    def command(*, dev_questions: DevQuestions = None, settings: StudentSettings = StudentSettings()) -> None:  # noqa: B008 - frozen
        """A command with the options that a recipe may set."""

    try:
        settings: StudentSettings = arguments_of(command, as_words(preset.values)).get("settings", StudentSettings())
    except CycloptsError as error:
        raise ValueError(f"--recipe {text}: {error_message(error)}") from error
    return settings


def options_from_recipe(verb: str) -> Callable[[App, tuple[str, ...], ArgumentCollection], None]:
    """A configuration of cyclopts: options of `train VERB` that a call leaves out have the values of its `--recipe`."""

    def fill(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        call = {
            name.lstrip("-").replace("-", "_"): each.tokens[-1].value
            for each in arguments
            if each.tokens
            for name in each.names
        }
        if "recipe" not in call:
            _check_useful(call, call)
            return
        preset = preset_of(call["recipe"], verb)
        if "teacher_loss" in call and "teacher" not in call:
            raise UsageError("--teacher-loss is for a run with --teacher: there are no scores to learn from.")
        if verb == DISTIL and call["recipe"].endswith(".toml"):
            student_settings(call["recipe"])  # an error in the file names the file
        values = with_changes(preset.values, call, verb=verb)
        added = {name: option_text(value) for name, value in values.items() if name not in call}
        Dict(added, source=f"recipe {call['recipe']}", use_commands_as_keys=False)(app, commands, arguments)

    return fill


def with_changes(recipe: Mapping[str, Any], changes: Mapping[str, Any], *, verb: str) -> dict[str, Any]:
    """The options of a recipe with the `changes` that a file or a call gives.

    Raises UsageError for options that exclude each other, or have no effect beside the others.
    """
    remaining = {name: value for name, value in recipe.items() if not changes.keys() & set(REPLACED_BY.get(name, ()))}
    # 1. Examples of another kind have none of the recipe's settings, and a step of another size.
    mode = remaining.get("sampling", DEFAULTS["sampling"])
    if verb == DISTIL and changes.get("sampling", mode) != mode:
        if "tokens_per_step" not in remaining and not changes.keys() & {"examples_per_step", "tokens_per_step"}:
            unit = "pairs" if changes["sampling"] == "pairs" else "groups"
            raise UsageError(f"--sampling {changes['sampling']} needs --examples-per-step, which counts {unit} then.")
        remaining = {name: value for name, value in remaining.items() if name not in SAMPLING}
    # 2. A learning rate alone changes the fresh one in the recipe's ratio.
    if verb == DISTIL and "fresh_learning_rate" in remaining and (rate := _number(changes.get("learning_rate"))):
        remaining["fresh_learning_rate"] = remaining["fresh_learning_rate"] / remaining["learning_rate"] * rate
    values = {**remaining, **changes}
    _check_useful(changes, values)
    return values


def _check_useful(changes: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Raise UsageError for an option of `changes` that excludes another one, or has no effect beside the `values`."""
    if {"examples_per_step", "tokens_per_step"} <= changes.keys():
        raise UsageError("--examples-per-step and --tokens-per-step are two sizes of a step: give one.")
    if {"steps", "epochs"} <= changes.keys():
        raise UsageError("--steps and --epochs are two lengths of a run: give one.")
    if changes.get("strategy") in INFERRED:
        raise UsageError(
            f"--strategy {changes['strategy']} follows from --heads and the number of --teacher: leave it out."
        )
    useless: list[tuple[tuple[str, ...], str]]
    useless = [(SAMPLING, "is for --train: --groups were sampled beforehand.")] if "groups" in values else []
    useless += [
        (names, reason) for names, other, value, reason in WITHOUT_EFFECT if values.get(other, DEFAULTS[other]) == value
    ]
    for names, reason in useless:
        for name in names:
            if name in changes:
                raise UsageError(f"{flag_of(name)} {reason}")


def flag_of(name: str) -> str:
    """The option of a field.

    >>> flag_of("hard_pool")
    '--hard-pool'
    """
    return f"--{name.replace('_', '-')}"


def option_text(value: Any) -> str:
    """The value of an option as it is typed.

    >>> option_text([2, 4]), option_text(1e-5)
    ('2,4', '1e-05')
    """
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def as_words(values: Mapping[str, Any]) -> list[str]:
    """Values of options, by the fields' names, as words of a shell.

    >>> as_words({"steps": 20, "exits": [2, 4]})
    ['--steps=20', '--exits=2,4']
    """
    return [f"{flag_of(key)}={option_text(value)}" for key, value in values.items()]


def _number(value: Any) -> float:
    """The value of an option as a number; 0 if it is none, which the option itself refuses."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


def _named(name: str, known: Mapping[str, Preset], where: str) -> Preset:
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f", perhaps {near[0]!r}" if near else ""
    raise ValueError(f"{where} {name!r} is unknown{hint}; `cerberank train recipes` lists them")


def _preset(name: str, table: Mapping[str, Any], known: Mapping[str, Preset], where: str) -> Preset:
    """The preset of a table, which has all settings of the one that it is from."""
    stated = {option: _setting(value) for option, value in _options(table).items()}
    if FROM not in table:
        return Preset(name=name, verb=table[VERB], about=table[ABOUT].strip(), settings=stated)
    start = _named(table[FROM], known, where)
    values = with_changes(start.values, {option: setting.value for option, setting in stated.items()}, verb=start.verb)
    settings = start.settings | stated
    settings = {option: replace(settings[option], value=value) for option, value in values.items()}
    return replace(start, name=name, about=table.get(ABOUT, start.about), settings=settings)


def _options(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in table.items() if key not in (FROM, VERB, ABOUT)}


def _setting(value: Any) -> Setting:
    return Setting(**value) if isinstance(value, dict) and set(value) <= {"value", "source"} else Setting(value=value)
