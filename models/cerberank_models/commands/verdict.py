"""Asks a running service if it serves a pushed version, or why it rejected the version."""

from __future__ import annotations

import json
import time
from http.client import HTTPException
from typing import Any
from urllib.request import urlopen

from cerberank_models.checkpoint.store.contract import Label, Reference

POLL_SECONDS, ANSWER_SECONDS = 0.5, 10.0


class VerdictError(ValueError):
    """A service did not report in time that it serves the version; the message contains its last state."""


class RejectedError(VerdictError):
    """A service rejected the version; the message contains the reason."""


def wait_for_verdict(url: str, reference: Reference, label: Label, end: float) -> None:
    """Return once the service at `url` serves the version as `label`.

    Asks `/v1/models` until the time `end` of the monotonic clock. Raises RejectedError if the service rejected the
    version, and VerdictError if it has not decided by then.
    """
    if not url.startswith(("http://", "https://")):
        raise VerdictError(f"{url} is not an http or https address")
    last = "it has not seen the version"
    while True:
        try:
            entry = _entry(url, reference)
        except (OSError, HTTPException, ValueError) as error:
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


def _entry(url: str, reference: Reference) -> dict[str, Any]:
    """The service's entry for the version; empty if there is none."""
    with urlopen(f"{url.rstrip('/')}/v1/models", timeout=ANSWER_SECONDS) as response:  # the operator gave the address
        models = json.load(response)["models"]
    return next((entry for entry in models if (entry.get("model"), entry.get("version")) == reference), {})
