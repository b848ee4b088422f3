"""Checks and default choices of single settings, for the fields of `Settings`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_network
from pathlib import Path

from pydantic import SecretStr, ValidationInfo

from cerberank_models.backends.registry import BACKENDS, check_precision, spec_of, usual_backend, usual_precision

SHORTEST_TOKEN = 16
DEVICES = tuple(dict.fromkeys(kind for spec in BACKENDS.values() for kind in spec.devices))
"""The kinds of devices that some backend runs on."""


def checked_token(value: SecretStr | None) -> SecretStr | None:
    """The token if it is long enough; None for an empty one, because templates leave a variable out by emptying it."""
    token = "" if value is None else value.get_secret_value()
    if not token:
        return None
    if len(token) < SHORTEST_TOKEN or not re.fullmatch(r"[!-~]+", token):
        raise ValueError(f"a token has at least {SHORTEST_TOKEN} ASCII characters and no blank")
    return value


def checked_networks(value: str) -> str:
    """The comma-separated addresses and networks. uvicorn would take any other text for a name, and trust none."""
    for item in listed(value):
        ip_network(item)
    return ",".join(listed(value))


def existing_file(value: Path | None) -> Path | None:
    """The path. Raises ValueError for one that is no file, which would else end the start with a traceback."""
    if value is not None and not value.is_file():
        raise ValueError("there is no such file")
    return value


def checked_step_tokens(value: int) -> int:
    """The number of tokens. Raises ValueError for one that is too small to be a step."""
    if 0 < value < 128:
        raise ValueError("a step has at least 128 tokens; 0 chooses their number")
    return value


def backend_of(value: str, info: ValidationInfo) -> str:
    """The backend, by default the device's usual one."""
    return spec_of(value or usual_backend(info.data["device"])).name


def precision_of(value: str, info: ValidationInfo) -> str:
    """Check the precision against the backend; an unknown backend already has an error of its own."""
    if "backend" not in info.data:
        return value
    backend = info.data["backend"]
    usual = usual_precision(backend, info.data["device"])
    # Ranges that are measured on few texts keep the order of most candidates, not a trusted model's very scores.
    if usual == "int8" and info.data.get("model"):
        usual = "fp32"
    return check_precision(backend, value or usual)


def either(names: Iterable[str]) -> str:
    """The names as a choice, for a description."""
    return " or ".join(f"`{name}`" for name in names)


def listed(value: str) -> list[str]:
    """The items of a comma-separated list, without blanks and empty ones."""
    return [item.strip() for item in value.split(",") if item.strip()]
