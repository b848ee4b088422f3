"""`cerberank push`, `pull` and `list`: the verbs of the store. None of them needs torch."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.store.contract import LABELS, Label, Reference, StoreError
from cerberank_models.checkpoint.store.contract import Store as Versions
from cerberank_models.checkpoint.store.open import open_store
from cerberank_models.commands.verdict import RejectedError, wait_for_verdict
from cerberank_models.store import Store, StoredVersion

STORE = "a folder, or an fsspec URL such as s3://bucket/models"


def push(argv: list[str]) -> int:
    """Verify a checkpoint, make it a version, then move a label to it."""
    parser = _parser("push", "Make a checkpoint a version in a store; the same checkpoint again is no error.")
    parser.add_argument("checkpoint", type=Path, help="the checkpoint folder; its config and manifest name the version")
    parser.add_argument("store", help=STORE)
    parser.add_argument("--label", choices=LABELS, help="move this label to the version once it is there")
    parser.add_argument(
        "--wait",
        type=float,
        metavar="SECONDS",
        help="wait until the services at --url serve it; move the label back if one rejects it",
    )
    parser.add_argument(
        "--url", action="append", help="for --wait: a service that follows the store; again for each replica"
    )
    arguments = parser.parse_args(argv)
    if (arguments.wait is None) != (arguments.url is None) or (arguments.url and not arguments.label):
        parser.error("--wait SECONDS, --url URL and --label LABEL go together")

    def run() -> None:
        store = open_store(arguments.store)
        model, version = store.push(read_checkpoint(arguments.checkpoint))
        _say(f"{model}@{version} is in {arguments.store}")
        if not arguments.label:
            return
        before = store.move_label(model, arguments.label, version)
        _say(moved(model, arguments.label, before, version))
        if arguments.wait is None:
            _say("no service was asked: whether it can be served is not known (--wait SECONDS --url URL asks)")
            return
        end = time.monotonic() + arguments.wait
        for url in arguments.url:
            try:
                wait_for_verdict(url, Reference(model, version), arguments.label, end)
            except RejectedError as error:
                undone = _moved_back(store, Reference(model, version), arguments.label, before)
                raise RejectedError(f"{error}; {undone}") from error
            _say(f"{url} serves it as {arguments.label}")
        if arguments.label == "stable":  # services that may only read the store cannot say so
            store.note_served(Reference(model, version))

    return _guarded("push", run)


def pull(argv: list[str]) -> int:
    """Copy a version to a folder and verify it."""
    parser = _parser("pull", "Copy a version out of a store and verify it.")
    parser.add_argument("store", help=STORE)
    parser.add_argument("version", metavar="MODEL[@VERSION|@LABEL]", help="a model alone means its stable version")
    parser.add_argument("target", type=Path, help="the folder to make; must not exist")
    arguments = parser.parse_args(argv)

    def run() -> None:
        _say(f"{Store(arguments.store).pull(arguments.version, arguments.target)} is in {arguments.target}")

    return _guarded("pull", run)


def list_(argv: list[str]) -> int:
    """Show what is in a store."""
    parser = _parser("list", "Show the models, versions and labels of a store.")
    parser.add_argument("store", help=STORE)
    parser.add_argument("model", nargs="?", help="only this model")
    parser.add_argument("--json", action="store_true", help="one JSON object a version")
    arguments = parser.parse_args(argv)

    def run() -> None:
        store = Store(arguments.store)
        for model in [arguments.model] if arguments.model else store.models():
            for version in store.versions(model):
                _say(json.dumps(asdict(version)) if arguments.json else _line(version))

    return _guarded("list", run)


def _line(row: StoredVersion) -> str:
    metrics = " ".join(f"{_named(name)}={value:.4g}" for name, value in row.metrics.items())
    return f"{row.name}  {row.created}  {','.join(row.labels) or '-'}  {metrics}".rstrip()


def _named(metric: str) -> str:
    """A metric's name; those of dev sets name the set in brackets, as different sets have figures of their own."""
    return f"{metric}[unnamed set]" if metric.startswith("dev_") and "[" not in metric else metric


def _moved_back(store: Versions, rejected: Reference, label: Label, before: str | None) -> str:
    """Move the label to the version `before`, unless it has moved on; returns what a person must know of it."""
    model, version = rejected
    if before == version:
        return f"the label {label} named it already, and still does"
    try:
        store.move_label(model, label, before, only_from=version)
    except (OSError, StoreError) as error:
        return f"the label {label} could not be moved back: {error}"
    return f"moved back: {moved(model, label, version, before)}"


def moved(model: str, label: str, before: str | None, version: str | None) -> str:
    """One line with the version that a label pointed to, and the version that it points to now.

    >>> moved("mini", "stable", None, "2")
    'mini@stable: nothing -> 2'
    """
    return f"{model}@{label}: {before or 'nothing'} -> {version or 'nothing'}"


def _parser(verb: str, description: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f"cerberank {verb}", description=description)


def _guarded(verb: str, run: Callable[[], None]) -> int:
    """Run a verb; returns 0, or 1 after writing the reason to standard error."""
    try:
        run()
    except (ValueError, OSError) as error:
        sys.stderr.write(f"cerberank {verb}: {error}\n")
        return 1
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
