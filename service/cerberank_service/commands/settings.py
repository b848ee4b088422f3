"""`settings`: prints the settings of the service with their values and sources."""

from __future__ import annotations

from cerberank_models.output import note, say
from cerberank_service.settings.environment import PREFIX, markdown_table, read_settings

SECRET = "(set)"
"""The value that is shown for a secret."""


def settings(word: str = "", /, *, changed: bool = False, markdown: bool = False) -> None:
    """Print the settings of the service: the variable, its value here, and if the environment or the default gives it.

    Wrong values and unknown variables are errors, as they are for `cerberank serve`.

    Args:
        word: Print the settings whose name or meaning has this word.
        changed: Leave out settings with their default values.
        markdown: Print the table of docs/settings.md, which has the defaults and meanings.
    """
    if markdown:
        say(markdown_table())
        return
    values = read_settings()
    found = False
    for name, field in type(values).model_fields.items():
        variable, value = f"{PREFIX}{name.upper()}", getattr(values, name)
        is_set = name in values.model_fields_set
        if word.lower() in f"{variable} {field.description}".lower() and (is_set or not changed):
            found = True
            shown = SECRET if name.endswith("token") and value else "" if value is None else value
            say(f"{variable}={shown}  [{'environment' if is_set else 'default'}]  {field.description}")
    if not found:
        note(f"no setting has {word!r} in its name or meaning" if word else "all settings have their default values")
