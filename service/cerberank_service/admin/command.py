"""`cerberank admin`: the operations of the admin port as commands."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from cerberank_models.commands.ratios import one_or_all, ratios
from cerberank_models.commands.store import moved
from cerberank_service.admin.client import Admin, AdminError
from cerberank_service.admin.options import add_credentials, connect

URL = "CERBERANK_ADMIN_URL"
LABEL = "use: cerberank label --url URL MODEL LABEL VERSION"
POLL_SECONDS = 0.2


def main(argv: list[str]) -> int:
    """Run the verb; returns 1 with the reason on standard error, 2 for a verb that was removed."""
    arguments = _parser().parse_args(argv)
    if arguments.verb_function is None:
        sys.stderr.write(f"cerberank admin: there is no verb 'label' any more; {LABEL}\n")
        return 2
    try:
        _run(arguments)
    except (AdminError, OSError) as error:
        sys.stderr.write(f"cerberank admin: {error}\n")
        return 1
    return 0


def _run(arguments: argparse.Namespace) -> None:
    admin = connect(arguments.url, arguments)
    answer: dict[str, Any] = arguments.verb_function(admin, arguments)
    if arguments.json:
        _say(json.dumps(answer))
    elif "label" in answer:
        _say(moved(**answer))
    else:
        _say(answer["state"])
        for entry in answer.get("models", ()):
            _say(_line(entry))
        for model, stored in (answer.get("store") or {}).items():
            _say(f"in the store: {model} {', '.join(stored['versions'])}")


def _load(admin: Admin, arguments: argparse.Namespace) -> dict[str, Any]:
    model, version = arguments.reference
    answer = admin.ask("POST", "models", model, "versions", version, "load")
    end = time.monotonic() + arguments.wait
    while time.monotonic() < end:
        answer = admin.ask("GET", "models")
        (entry,) = [e for e in answer["models"] if (e.get("model"), e.get("version")) == (model, version)] or [{}]
        if entry.get("state") == "ready":
            return answer
        if entry.get("state") in {"failed", "refused"}:
            raise AdminError(f"{model}@{version}: {entry['reason']}")
        time.sleep(POLL_SECONDS)
    if arguments.wait:
        raise AdminError(f"{model}@{version} is not ready after {arguments.wait:g} seconds")
    return answer


def _schedule(admin: Admin, arguments: argparse.Namespace) -> dict[str, Any]:
    wanted = None if arguments.reset else one_or_all(arguments.ratios)
    place = ("models", arguments.reference[0], "versions", arguments.reference[1], "drop-schedule")
    return admin.ask("PUT", *place, body={"drop_schedule": wanted})


def _line(entry: dict[str, Any]) -> str:
    name = f"{entry['model']}@{entry['version']}" if "version" in entry else "-"
    notes = [*entry.get("labels", ()), *(note for note in ("rollback", "pinned") if entry.get(note))]
    dropped = f"drops {entry['drop_schedule']}" if entry.get("drop_schedule") else ""
    return "  ".join(filter(None, [name, entry["state"], ",".join(notes), dropped, entry.get("reason") or ""]))


def _reference(text: str) -> tuple[str, str]:
    model, _, version = text.partition("@")
    if not (model and version):
        raise argparse.ArgumentTypeError(f"{text!r} is not MODEL@VERSION")
    return model, version


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cerberank admin", description="Operate a running service by its admin port.")
    parser.add_argument(
        "--url",
        default=os.environ.get(URL) or None,
        help=f"default: {URL}, or the port of this machine's service by CERBERANK_ADMIN_HOST, CERBERANK_ADMIN_PORT and "
        "CERBERANK_TLS_CERTIFICATE",
    )
    add_credentials(parser)
    parser.add_argument("--json", action="store_true", help="the answer as it came")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def verb(
        name: str, help_: str, run: Callable[[Admin, argparse.Namespace], dict[str, Any]]
    ) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=help_)
        added.set_defaults(verb_function=run)
        return added

    verb("list", "versions in service and in the store", lambda admin, _: admin.ask("GET", "models"))
    load = verb("load", "keep a version of the store loaded, whatever the labels say", _load)
    load.add_argument("reference", type=_reference, metavar="MODEL@VERSION")
    load.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="until it is ready; else do not wait")
    unload = verb(
        "unload",
        "give back the memory of a version that no label names",
        lambda admin, a: admin.ask("POST", "models", a.reference[0], "versions", a.reference[1], "unload"),
    )
    unload.add_argument("reference", type=_reference, metavar="MODEL@VERSION")
    rollback = verb(
        "rollback",
        "make the version before stable again",
        lambda admin, a: admin.ask("POST", "models", a.model, "rollback"),
    )
    rollback.add_argument("model")
    schedule = verb("schedule", "what a version's exits drop when a call is silent; this replica alone", _schedule)
    schedule.add_argument("reference", type=_reference, metavar="MODEL@VERSION")
    choice = schedule.add_mutually_exclusive_group(required=True)
    choice.add_argument("ratios", nargs="?", type=ratios, help="one for every exit, or one per exit: 0.3,0.2")
    choice.add_argument("--reset", action="store_true", help="the checkpoint's own")
    verb(
        "drain",
        "take no new questions and be not ready; this replica alone",
        lambda admin, _: admin.ask("POST", "drain"),
    )
    verb("resume", "take questions again", lambda admin, _: admin.ask("POST", "resume"))
    gone = verbs.add_parser("label", add_help=False)  # not in the help; its error message names the replacement
    gone.add_argument("places", nargs="*")
    gone.add_argument("--remove", action="store_true")
    gone.set_defaults(verb_function=None)
    return parser


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
