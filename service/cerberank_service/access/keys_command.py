"""`cerberank keys`: creates, lists and removes the API keys of the file that `CERBERANK_KEYS_FILE` names."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from cerberank_service.access.keys import Key, add_key, read_keys, remove_key

VARIABLE = "CERBERANK_KEYS_FILE"


def main(argv: list[str]) -> int:
    """Run the verb; returns 1 with the reason on standard error."""
    arguments = _parser().parse_args(argv)
    try:
        _run(arguments)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"cerberank keys: {error}\n")
        return 1
    return 0


def _run(arguments: argparse.Namespace) -> None:
    if arguments.file is None:
        raise ValueError(f"name the file: --file FILE, or {VARIABLE}")
    if arguments.verb == "add":
        secret = add_key(
            arguments.file,
            arguments.name,
            requests_per_minute=arguments.requests_per_minute,
            tokens_per_minute=arguments.tokens_per_minute,
        )
        sys.stderr.write("The key is shown this once; the file holds its hash.\n")
        sys.stdout.write(secret + "\n")
    elif arguments.verb == "remove":
        remove_key(arguments.file, arguments.name)
    else:
        for key in read_keys(arguments.file):
            sys.stdout.write(_line(key) + "\n")


def _line(key: Key) -> str:
    requests, tokens = key.requests_per_minute or "any", key.tokens_per_minute or "any"
    return f"{key.name}  {key.id}  {key.created}  {requests} requests and {tokens} tokens a minute"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cerberank keys", description="API keys for ranking, hashed in a file.")
    default = os.environ.get(VARIABLE)
    parser.add_argument(
        "--file", type=Path, default=Path(default) if default else None, help=f"default: what {VARIABLE} names"
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    add = verbs.add_parser("add", help="make a key and show it once")
    add.add_argument("name", help="who will use it; stands in log lines")
    add.add_argument("--requests-per-minute", type=int, help="default: any number")
    add.add_argument("--tokens-per-minute", type=int, help="tokens of all pairs; default: any number")
    remove = verbs.add_parser("remove", help="let a key no longer work")
    remove.add_argument("name")
    verbs.add_parser("list", help="show names, ids in metrics, and quotas")
    return parser
