"""The commands `cerberank store push`, `pull`, `list` and `label`. They do not need torch."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import httpx
from cyclopts import Parameter

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.store.checkpoint_store import (
    CheckpointStore,
    Label,
    Reference,
    StoreError,
    check_label,
    check_model,
    check_version,
)
from cerberank_models.checkpoint.store.open_store import open_store
from cerberank_models.connection import checked_url, open_client
from cerberank_models.output import UsageError, say, say_json
from cerberank_models.store import Store as NamedStore
from cerberank_models.store import StoredVersion

Address = Annotated[str, Parameter(help="Store: a folder, or an fsspec URL such as s3://bucket/models.")]
Model = Annotated[str, Parameter(help="Name of the model.")]
Json = Annotated[bool, Parameter(help="Print JSON instead of text.")]
POLL_SECONDS, ANSWER_SECONDS = 0.5, 10.0
"""The pause between two questions to a service, and the timeout of its answer."""


class VerdictError(ValueError):
    """A service did not report in time that it serves the version; the message contains its last state."""


class RejectedError(VerdictError):
    """A service rejected the version; the message contains the reason."""


def push(
    checkpoint: Path,
    store: Address,
    /,
    *,
    label: Label | None = None,
    wait: float | None = None,
    url: tuple[str, ...] = (),
) -> None:
    """Add a checkpoint to a store as a version. Pushing the same checkpoint again is not an error.

    Services on processors need ONNX graphs in the checkpoint. After a training with --forms none, make them with
    `cerberank export`.

    Args:
        checkpoint: Checkpoint folder, which states the model and the version.
        store: Store.
        label: Label to move to the version after the push.
        wait: Seconds to wait until the services at --url serve the version; if one rejects it, the label moves back.
        url: Address of a service that follows the store; repeat it for each replica.
    """
    if (wait is None) != (not url) or (url and not label):
        raise UsageError("--wait SECONDS, --url URL and --label LABEL go together")
    for address in url:
        checked_url(address)
    opened = open_store(store)
    model, version = opened.push(read_checkpoint(checkpoint, hashed=False))
    say(f"{model}@{version} is in {store}")
    if not label:
        return
    before = opened.move_label(model, label, version)
    say(moved(model, label, before, version))
    if wait is None:
        say("no service has confirmed yet that it serves the version; --wait SECONDS --url URL waits for this")
        return
    end = time.monotonic() + wait
    for address in url:
        try:
            wait_for_verdict(address, Reference(model, version), label, end)
        except RejectedError as error:
            undone = _moved_back(opened, Reference(model, version), label, before)
            raise RejectedError(f"{error}; {undone}") from error
        say(f"{address} serves it as {label}")
    if label == "stable":  # recorded here, because the services may only have read access
        opened.note_served(Reference(model, version))


def wait_for_verdict(url: str, reference: Reference, label: Label, end: float) -> None:
    """Return once the service at `url` serves the version as `label`.

    Asks `/v1/models` until the time `end` of the monotonic clock. Raises RejectedError if the service rejected the
    version, and VerdictError if it has not decided by then.
    """
    last = "it has not seen the version"
    with open_client(url, timeout=ANSWER_SECONDS) as client:
        while True:
            try:
                entry = _entry(client, reference)
            except (httpx.HTTPError, ValueError) as error:
                entry, last = {}, f"it does not answer: {error}"
            if entry.get("state") in {"failed", "refused"}:
                raise RejectedError(f"{'@'.join(reference)} is rejected by {url}: {entry.get('reason')}")
            if entry.get("state") == "ready" and label in entry.get("labels", ()):
                return
            if entry:
                last = f"it is {entry.get('state')}" + (f", {entry['reason']}" if entry.get("reason") else "")
            if time.monotonic() >= end:
                raise VerdictError(f"{url} has given no verdict on {'@'.join(reference)} in time: {last}")
            time.sleep(POLL_SECONDS)


def _entry(client: httpx.Client, reference: Reference) -> dict[str, Any]:
    """The service's entry for the version; empty if there is none. Raises httpx.HTTPError and ValueError."""
    answer = client.get("/v1/models").raise_for_status().json()
    if not isinstance(answer, dict) or not isinstance(answer.get("models"), list):
        raise ValueError("it is another service")
    return next((entry for entry in answer["models"] if (entry.get("model"), entry.get("version")) == reference), {})


def pull(store: Address, version: str, target: Path, /) -> None:
    """Copy a version out of a store, and verify it.

    Args:
        store: Store.
        version: MODEL, MODEL@VERSION or MODEL@LABEL; MODEL means its stable version.
        target: Folder to create.
    """
    say(f"{NamedStore(store).pull(version, target)} is in {target}")


def list_(store: Address, model: str | None = None, /, *, json: Json = False) -> None:
    """Show the models, versions and labels of a store.

    Args:
        store: Store.
        model: Name of the model to show (default: all models).
        json: Print JSON instead of text.
    """
    opened = NamedStore(store)
    for name in [model] if model else opened.models():
        for row in opened.versions(name):
            if json:
                say_json(asdict(row))
            else:
                say(_line(row))


def label(
    store: Address,
    model: Model,
    label: str,
    version: str | None = None,
    /,
    *,
    remove: bool = False,
    only_from: str | None = None,
    json: Json = False,
) -> None:
    """Move a label to a version, or remove the label. All services that follow the store load the version.

    Args:
        store: Store.
        model: Name of the model.
        label: stable, canary or shadow.
        version: Version that the label is to name, such as 3; left out with --remove.
        remove: Remove the label instead.
        only_from: Move the label only if it names this version now.
        json: Print JSON instead of text.
    """
    check_target(version, remove=remove, only_from=only_from)
    name, wanted = check_model(model), check_label(label)
    target = None if version is None else check_version(version)
    before = open_store(store).move_label(name, wanted, target, only_from=only_from)
    answer = {"model": name, "label": wanted, "before": before, "version": target}
    if json:
        say_json(answer)
    else:
        say(moved(name, wanted, before, target))


def check_target(version: str | None, *, remove: bool, only_from: str | None) -> None:
    """Raise UsageError unless the label is to be moved to a version or removed, but not both."""
    if (version is None) != remove:
        raise UsageError("name a VERSION, or --remove the label")
    if remove and only_from:
        raise UsageError("--only-from goes with a VERSION")


def _line(row: StoredVersion) -> str:
    metrics = " ".join(f"{_named(name)}={value:.4g}" for name, value in row.metrics.items())
    return f"{row.name}  {row.created}  {','.join(row.labels) or '-'}  {metrics}".rstrip()


def _named(metric: str) -> str:
    """The metric's name, with "[unnamed set]" for a metric of a dev set whose name is not in brackets."""
    return f"{metric}[unnamed set]" if metric.startswith("dev_") and "[" not in metric else metric


def _moved_back(store: CheckpointStore, rejected: Reference, label: Label, before: str | None) -> str:
    """Move the label back to the version `before`, unless it was moved meanwhile; returns a message on the result."""
    model, version = rejected
    if before == version:
        return f"the label {label} named it already, and still does"
    try:
        store.move_label(model, label, before, only_from=version)
    except (OSError, StoreError) as error:
        return f"the label {label} could not be moved back: {error}"
    return f"moved back: {moved(model, label, version, before)}"


def moved(model: str, label: str, before: str | None, version: str | None) -> str:
    """A line with the version that a label pointed to, and the version that it points to now.

    >>> moved("mini", "stable", None, "2")
    'mini@stable: nothing -> 2'
    """
    return f"{model}@{label}: {before or 'nothing'} -> {version or 'nothing'}"
