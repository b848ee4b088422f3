"""`cerberank label`: moves a label, in a store or through a service that may write to its store.

The second form is for operators who have the admin port's token but not the store's credentials.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from cerberank_models.checkpoint.store.contract import LABELS, check_label, check_model, check_version
from cerberank_models.checkpoint.store.open import open_store
from cerberank_models.commands.store import STORE, moved
from cerberank_service.admin.client import AdminError
from cerberank_service.admin.options import add_credentials, connect

USAGE = """cerberank label STORE MODEL LABEL (VERSION [--only-from VERSION] | --remove) [--json]
       cerberank label --url URL MODEL LABEL (VERSION [--only-from VERSION] | --remove)
                       [--token-file FILE] [--certificate FILE] [--json]"""


def main(argv: list[str]) -> int:
    """Run the verb; returns 1 with the reason on standard error."""
    arguments = _arguments(argv)
    try:
        answer = _move(arguments) if arguments.url is None else _ask(arguments)
    except (AdminError, ValueError, OSError) as error:
        sys.stderr.write(f"cerberank label: {error}\n")
        return 1
    sys.stdout.write((json.dumps(answer) if arguments.json else moved(**answer)) + "\n")
    return 0


def _move(arguments: argparse.Namespace) -> dict[str, Any]:
    """Move the label in the store itself."""
    model, label = check_model(arguments.model), check_label(arguments.label)
    version = None if arguments.remove else check_version(arguments.version)
    before = open_store(arguments.store).move_label(model, label, version, only_from=arguments.only_from)
    return {"model": model, "label": label, "before": before, "version": version}


def _ask(arguments: argparse.Namespace) -> dict[str, Any]:
    """Let a running service move the label in the store that it follows."""
    admin, place = connect(arguments.url, arguments), ("models", arguments.model, "labels", arguments.label)
    if arguments.remove:
        return admin.ask("DELETE", *place)
    return admin.ask("PUT", *place, body={"version": arguments.version, "only_from": arguments.only_from})


def _arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the options first, because with `--url` there is no positional argument STORE."""
    options = argparse.ArgumentParser(prog="cerberank label", usage=USAGE, add_help=False, allow_abbrev=False)
    options.add_argument("--url", help="the admin port of a service, instead of a store: it moves the label in its own")
    add_credentials(options)
    options.add_argument("--json", action="store_true", help="one JSON object")
    options.add_argument("--only-from", metavar="VERSION", help="move the label from this version alone, else fail")
    known, places = options.parse_known_args(argv)
    parser = argparse.ArgumentParser(
        prog="cerberank label",
        usage=USAGE,
        description="Let a label stand for a version; every service that follows the store goes along.",
        parents=[options],
        allow_abbrev=False,
    )
    if known.url is None:
        parser.add_argument("store", metavar="STORE", help=STORE)
        if known.token_file or known.certificate:
            parser.error("--token-file and --certificate go with --url")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("label", metavar="LABEL", choices=LABELS, help=", ".join(LABELS))
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("version", metavar="VERSION", nargs="?")
    target.add_argument("--remove", action="store_true", help="let the label stand for nothing")
    arguments = parser.parse_args(places, known)
    if arguments.remove and arguments.only_from:
        parser.error("--only-from goes with a VERSION")
    return arguments
