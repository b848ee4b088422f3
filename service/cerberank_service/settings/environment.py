"""Reads the settings from the environment, and describes them.

`python -m cerberank_service.settings` prints the table in the README.
"""

from __future__ import annotations

import os

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from cerberank_service.settings.fields import Settings
from cerberank_service.settings.removed import REMOVED


class SettingsError(ValueError):
    """A variable has a value that cannot be used; the message names it."""


def read_settings() -> Settings:
    """Settings from the environment. Raises SettingsError naming every variable that is wrong or was removed."""
    named = {name.upper() for name, value in os.environ.items() if value}  # templates leave one out by emptying it
    if gone := [name for name in REMOVED if name in named]:
        raise SettingsError("; ".join(f"{name} is no setting any more: {REMOVED[name]}" for name in gone))
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsError("; ".join(_problem(problem) for problem in error.errors())) from None


def _problem(problem: ErrorDetails) -> str:
    """The error of a variable with its name, and with its value unless that is a secret."""
    if not problem["loc"]:
        return problem["msg"].removeprefix("Value error, ")
    name = str(problem["loc"][0])
    shown = "" if name.endswith("token") else f"={problem['input']!r}"
    return f"CERBERANK_{name.upper()}{shown}: {problem['msg']}"


def markdown_table() -> str:
    """The settings as a Markdown table."""
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default in (None, "") else f"`{field.default}`"
        rows.append(f"| `CERBERANK_{name.upper()}` | {default} | {field.description} |")
    return "\n".join(rows)
