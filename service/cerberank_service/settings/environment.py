"""Reads the settings from the environment, and describes them."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from cerberank_service.settings.fields import Settings

PREFIX = "CERBERANK_"
OTHERS = ("CERBERANK_ADMIN_URL", "CERBERANK_GPU_CHECKPOINT")
"""Variables with the prefix that are not settings of the service: they are for `cerberank admin` and
docker-compose.yml."""
NOTHING: Mapping[str, str | None] = MappingProxyType({})
SERVICE_VARIABLE = re.compile(
    r"CERBERANK_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
"""Variables that Kubernetes sets in a pod for every Service whose name begins with `cerberank`."""
SERVICE_ADDRESS = re.compile("(tcp|udp|sctp)://.*")
"""The value of `<SERVICE>_PORT`, which Kubernetes sets too; for a Service named `cerberank` it is CERBERANK_PORT."""


class SettingsError(ValueError):
    """A variable is unknown or has an unusable value; the message names it."""


def read_settings(options: Mapping[str, str | None] = NOTHING) -> Settings:
    """The settings from the environment; `options`, by the names of fields, take precedence.

    Raises SettingsError, which names every removed, unknown or quoted variable or, without those, every wrong value.
    """
    # An empty variable counts as unset, because templates can often only empty a variable.
    variables = {name.upper(): value for name, value in os.environ.items() if value and name.upper().startswith(PREFIX)}
    if wrong := [*_foreign(variables), *_quoted(variables)]:
        raise SettingsError("; ".join(wrong))
    try:
        return Settings(**options)  # type: ignore[arg-type]
    except ValidationError as error:
        raise SettingsError("; ".join(_problem(problem) for problem in error.errors())) from None


def logs_json() -> bool:
    """True if the log is JSON according to the environment, whatever is wrong with the other settings."""
    return os.environ.get("CERBERANK_LOG_FORMAT") == "json"


def missing_temporary_folder() -> str:
    """The value of `TMPDIR` if it is not a folder, which Python ignores silently; otherwise ""."""
    folder = os.environ.get("TMPDIR", "")
    return folder if folder and not Path(folder).is_dir() else ""


def _foreign(variables: Mapping[str, str]) -> Iterator[str]:
    """The errors of variables that are not settings; those that Kubernetes sets are none."""
    accepted = [*(PREFIX + name.upper() for name in Settings.model_fields), *OTHERS]
    for name, value in sorted(variables.items()):
        if name in REMOVED:
            yield f"{name} is not a setting any more: {REMOVED[name]}"
        elif name not in accepted and not _is_of_kubernetes(name, value):
            nearest = difflib.get_close_matches(
                name.removeprefix(PREFIX), [each.removeprefix(PREFIX) for each in accepted], 1
            )
            yield f"{name} is not a setting" + (f"; is {PREFIX}{nearest[0]} meant?" if nearest else "")


def _quoted(variables: Mapping[str, str]) -> Iterator[str]:
    """The errors of values that a file of variables has spoilt; the value is not shown, as it may be secret."""
    for name, value in sorted(variables.items()):
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            yield f"{name} has quotation marks around its value, which `docker --env-file` keeps: leave them out"
        elif re.search(r"[\x00-\x1f\x7f]", value):
            yield f"{name} has a line break or another control character in its value"


def _is_of_kubernetes(name: str, value: str) -> bool:
    if SERVICE_VARIABLE.fullmatch(name):
        return True
    return name.endswith("_PORT") and SERVICE_ADDRESS.fullmatch(value) is not None


def _problem(problem: ErrorDetails) -> str:
    """The error of a variable, with its name and, unless it is secret, its value."""
    if not problem["loc"]:
        return problem["msg"].removeprefix("Value error, ")
    name = str(problem["loc"][0])
    shown = "" if name.endswith("token") else f"={problem['input']!r}"
    injected = name.endswith("port") and SERVICE_ADDRESS.fullmatch(str(problem["input"]))
    why = "set by Kubernetes for a Service of this name; set enableServiceLinks: false in the pod" if injected else ""
    return f"{PREFIX}{name.upper()}{shown}: {why or problem['msg']}"


def markdown_table() -> str:
    """The settings as a Markdown table."""
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default in (None, "") else f"`{field.default}`"
        rows.append(f"| `CERBERANK_{name.upper()}` | {default} | {field.description} |")
    return "\n".join(rows)


REMOVED: Mapping[str, str] = MappingProxyType(
    {
        "CERBERANK_ADMIN_HOST": "the admin port listens on 127.0.0.1; ask it from the machine, container or pod",
        "CERBERANK_ENCODE_WORKERS": "the device and the usable processors determine the number of threads",
        "CERBERANK_MAX_WINDOWS": "a long text is read in at most 64 windows",
        "CERBERANK_MODEL_REVISION": "name it in CERBERANK_MODEL: OWNER/NAME@REVISION",
    }
)
"""Settings of releases that are gone, with their replacements; the service does not start if one of them is set."""
