"""`--recipe`: a recipe by its name, or a TOML file that changes settings of one.

The file's keys are the names of the options that replace settings, without dashes in front, and `from`, a recipe:

    from = "electra-base-b11-3h1"
    learning_rate = 2e-5
    exits = [2, 4]
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cerberank_training.commands.recipe_options import NAMES, OPTIONS, add_recipe_options, filled_recipe
from cerberank_training.students.recipes import RECIPES, Recipe

FROM = "from"
SWITCH = "train_token_embeddings"
"""The only setting that is true or false."""


@dataclass(frozen=True, slots=True)
class NamedRecipe:
    """A recipe, and what records and cards call it."""

    title: str
    """Its name, or the file's name with the recipe that it starts from and the settings that it changes."""
    recipe: Recipe


def recipe_help() -> str:
    """The help of `--recipe`."""
    return f"TOML file, or one of {', '.join(sorted(RECIPES))}"


def add_recipe_option(parser: argparse.ArgumentParser) -> None:
    """Add `--recipe`."""
    parser.add_argument("--recipe", metavar="NAME|FILE.toml", required=True, help=recipe_help())


def read_recipe(text: str) -> NamedRecipe:
    """The recipe of this name, or of this file. Raises ValueError, which names the file's key."""
    if not text.endswith(".toml"):
        return NamedRecipe(text, _recipe(text, "--recipe"))
    path = Path(text)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"--recipe {path}: {reason}") from error
    values = {key.replace("-", "_"): value for key, value in values.items()}
    start = values.pop(FROM, None)
    if not isinstance(start, str):
        raise ValueError(f"--recipe {path}: `from` is missing, the name of the recipe that it changes")
    recipe = _recipe(start, f"--recipe {path}: from")
    try:
        changed = filled_recipe(recipe, _values(values))
    except ValueError as error:
        raise ValueError(f"--recipe {path}: {error}") from error
    settings = ", ".join(f"{name} {_text(value)}" for name, value in values.items())
    return NamedRecipe(f"{path.name} (from {start}{': ' if settings else ''}{settings})", changed)


def _recipe(name: str, where: str) -> Recipe:
    if name in RECIPES:
        return RECIPES[name]()
    raise ValueError(f"{where} {name!r} is unknown{_nearest(name, RECIPES)}; known are {', '.join(sorted(RECIPES))}")


def _values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as the command line's parser would give them. Raises ValueError, which names the key."""
    for key in values:
        if key not in NAMES:
            raise ValueError(f"{key!r} is no setting{_nearest(key, NAMES)}")
    flags = {option.dest: option.flag for option in OPTIONS}
    parser = _Parser(add_help=False, allow_abbrev=False)
    add_recipe_options(parser)
    read: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, bool) != (key == SWITCH):
            raise ValueError(f"{key} cannot be {_text(value)}")
        given = f"{flags.get(key, f'--{key}')}={_text(value)}"
        read[key] = value if key == SWITCH else vars(parser.parse_args([given]))[key]
    return read


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are the file's, not the command line's."""

    def error(self, message: str) -> Any:
        raise ValueError(message.removeprefix("argument "))


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _nearest(name: str, known: Any) -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.4)
    return f", perhaps {near[0]!r}" if near else ""
