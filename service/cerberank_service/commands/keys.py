"""`cerberank server keys`: creates, lists and removes the API keys of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from cerberank_models.commands.values import DEFAULTS, Count
from cerberank_models.output import note, say
from cerberank_service.access.keys import Key, add_key, read_keys, remove_key

VARIABLE = "CERBERANK_KEYS_FILE"
File = Annotated[
    Path | None, Parameter(env_var=VARIABLE, show_env_var=False, help=f"File of keys (default: that of {VARIABLE}).")
]

app = App(name="keys", help="API keys for ranking, hashed in a file.", default_parameter=DEFAULTS)


@app.command
def add(
    name: str,
    /,
    *,
    requests_per_minute: Count | None = None,
    tokens_per_minute: Count | None = None,
    file: File = None,
) -> None:
    """Make a key, and show it once.

    Args:
        name: Name of its user, which log lines have.
        requests_per_minute: Quota of requests (default: none).
        tokens_per_minute: Quota of tokens of all pairs (default: none).
        file: File of keys.
    """
    secret = add_key(_named(file), name, requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute)
    note("The key is shown this once; the file holds its hash.")
    say(secret)


@app.command
def remove(name: str, /, *, file: File = None) -> None:
    """Remove a key: it no longer works.

    Args:
        name: Name of its user.
        file: File of keys.
    """
    remove_key(_named(file), name)
    note(f"the key {name} is removed")


@app.command(name="list")
def list_(*, file: File = None) -> None:
    """Show the names of all keys, their ids in metrics, and their quotas.

    Args:
        file: File of keys.
    """
    for key in read_keys(_named(file)):
        say(_line(key))


def _named(file: Path | None) -> Path:
    if file is None or not file.name:
        raise ValueError(f"name the file: --file FILE, or {VARIABLE}")
    return file


def _line(key: Key) -> str:
    requests, tokens = key.requests_per_minute or "any", key.tokens_per_minute or "any"
    return f"{key.name}  {key.id}  {key.created}  {requests} requests and {tokens} tokens a minute"
