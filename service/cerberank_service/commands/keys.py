"""`cerberank admin keys`: creates, lists and removes the API keys of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from cerberank_models.commands.values import DEFAULTS, Count
from cerberank_models.output import note, say
from cerberank_service.access.key_file import Key, add_key, read_keys, remove_key

VARIABLE = "CERBERANK_KEYS_FILE"
File = Annotated[Path | None, Parameter(env_var=VARIABLE, show_env_var=False, help=f"Key file (default: {VARIABLE}).")]

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
    """Create a key, and show it once.

    Args:
        name: Name of the user of the key, which log lines contain.
        requests_per_minute: Quota of requests (default: unlimited).
        tokens_per_minute: Quota of tokens, over all pairs (default: unlimited).
        file: Key file.
    """
    path = _named(file)
    secret = add_key(path, name, requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute)
    note(f"The key is shown this once; {path} holds its hash.")
    say(secret)


@app.command
def remove(name: str, /, *, file: File = None) -> None:
    """Remove a key, which then no longer works.

    Args:
        name: Name of the user of the key.
        file: Key file.
    """
    path = _named(file)
    remove_key(path, name)
    note(f"The key {name} is removed from {path}.")


@app.command(name="list")
def list_(*, file: File = None) -> None:
    """Show the name of every key, its id in metrics, and its quotas.

    Args:
        file: Key file.
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
