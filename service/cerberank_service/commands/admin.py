"""The commands of `cerberank admin` that ask the admin port of a running service."""

from __future__ import annotations

import json
import os
import ssl
import time
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import quote

import httpx
from cyclopts import Parameter

from cerberank_models.commands.options import Ratios
from cerberank_models.commands.store import check_target, moved
from cerberank_models.commands.values import Dropped
from cerberank_models.connection import open_client
from cerberank_models.output import UsageError, say, say_json
from cerberank_service.commands.probe import own_address, pinned

TOKEN = "CERBERANK_ADMIN_TOKEN"
POLL_SECONDS = 0.2


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Port:
    """The admin port to ask."""

    url: Annotated[str | None, Parameter(env_var="CERBERANK_ADMIN_URL", show_env_var=False)] = None
    """Address of the admin port (default: CERBERANK_ADMIN_URL, or the service on this machine, by its settings)."""
    json: bool = False
    """Print the answer of the service as JSON."""

    def open(self) -> Admin:
        """A client of the port; the certificate of this machine's service is trusted.

        Raises AdminError without a token or an address, and OSError, which names the file, if the certificate is
        unreadable.
        """
        token = os.environ.get(TOKEN, "")
        if not token.strip():
            raise AdminError(f"no token: set {TOKEN}")
        if self.url:
            return Admin(self.url, token)
        try:
            address = own_address("CERBERANK_ADMIN_")
        except ValueError as error:
            raise AdminError(f"{error}; name the address by --url") from error
        return Admin(address.url, token, None if address.certificate is None else pinned(address.certificate))

    def show(self, answer: dict[str, Any]) -> None:
        """Print an answer: a label that has moved, or the state and the versions."""
        if self.json:
            say_json(answer)
        elif "label" in answer:
            say(moved(**answer))
        else:
            say(answer["state"])
            for entry in answer.get("models", ()):
                say(_line(entry))
            for model, stored in (answer.get("store") or {}).items():
                say(f"in the store: {model} {', '.join(stored['versions'])}")
            if "store_error" in answer:
                say(answer["store_error"])


OWN = Port()
"""The service of this machine."""


def models(*, port: Port = OWN) -> None:
    """Show the versions that a service has loaded, and those of its store."""
    port.show(port.open().ask("GET", "models"))


def load(reference: str, /, *, wait: float = 0.0, port: Port = OWN) -> None:
    """Load a version of the store, and keep it loaded whatever the labels say.

    Args:
        reference: MODEL@VERSION.
        wait: Seconds to wait until the version is ready.
        port: The admin port.
    """
    model, version = _parts(reference)
    admin = port.open()
    answer = admin.ask("POST", "models", model, "versions", version, "load")
    end = time.monotonic() + wait
    while time.monotonic() < end:
        answer = admin.ask("GET", "models")
        (entry,) = [e for e in answer["models"] if (e.get("model"), e.get("version")) == (model, version)] or [{}]
        if entry.get("state") == "ready":
            break
        if entry.get("state") in {"failed", "refused"}:
            raise AdminError(f"{reference}: {entry['reason']}")
        time.sleep(POLL_SECONDS)
    else:
        if wait:
            raise AdminError(f"{reference} is not ready after {wait:g} seconds")
    port.show(answer)


def unload(reference: str, /, *, port: Port = OWN) -> None:
    """Unload a version that no label names, and free its memory.

    Args:
        reference: MODEL@VERSION.
        port: The admin port.
    """
    model, version = _parts(reference)
    port.show(port.open().ask("POST", "models", model, "versions", version, "unload"))


def rollback(model: str, /, *, port: Port = OWN) -> None:
    """Move the label stable back to the version that it named before.

    Args:
        model: Name of the model.
        port: The admin port.
    """
    port.show(port.open().ask("POST", "models", model, "rollback"))


def label(
    model: str,
    label: str,
    version: str | None = None,
    /,
    *,
    remove: bool = False,
    only_from: str | None = None,
    port: Port = OWN,
) -> None:
    """Move a label in the store that the service follows, without the store's credentials.

    Args:
        model: Name of the model.
        label: stable, canary or shadow.
        version: Version that the label is to name, such as 3; left out with --remove.
        remove: Remove the label instead.
        only_from: Move the label only if it names this version now.
        port: The admin port.
    """
    check_target(version, remove=remove, only_from=only_from)
    place = ("models", model, "labels", label)
    admin = port.open()
    if remove:
        port.show(admin.ask("DELETE", *place))
    else:
        port.show(admin.ask("PUT", *place, body={"version": version, "only_from": only_from}))


def schedule(
    reference: str,
    ratios: Ratios = (),
    /,
    *,
    lexical_ratio: Dropped = 0.0,
    reset: bool = False,
    port: Port = OWN,
) -> None:
    """Change the default drop schedule of a version, in this replica only.

    Args:
        reference: MODEL@VERSION or MODEL@LABEL.
        ratios: Share of candidates that exits drop: one number for all exits, or one for each (0.3,0.5).
        lexical_ratio: Share of candidates that is dropped before any layer, by BM25.
        reset: Use the schedule of the checkpoint again.
        port: The admin port.
    """
    if bool(ratios) == reset or (reset and lexical_ratio):
        raise UsageError("name the ratios, or --reset the schedule")
    wanted = None if reset else ratios[0] if len(ratios) == 1 else list(ratios)
    model, version = _parts(reference)
    place = ("models", model, "versions", version, "drop-schedule")
    port.show(port.open().ask("PUT", *place, body={"drop_schedule": wanted, "lexical_ratio": lexical_ratio}))


def drain(*, port: Port = OWN) -> None:
    """Make this replica refuse new questions and fail its readiness probe."""
    port.show(port.open().ask("POST", "drain"))


def resume(*, port: Port = OWN) -> None:
    """Make this replica accept questions again after `drain`."""
    port.show(port.open().ask("POST", "resume"))


def _line(entry: dict[str, Any]) -> str:
    name = f"{entry['model']}@{entry['version']}" if "version" in entry else "-"
    labels = entry.get("labels", ())
    wanted = [f"wanted as {label}" for label in entry.get("wanted", ()) if label not in labels]
    notes = [*labels, *wanted, *(note for note in ("rollback", "pinned") if entry.get(note))]
    lexical = f"lexical {entry['lexical_ratio']:g}, then " if entry.get("lexical_ratio") else ""
    dropped = f"drops {lexical}{entry['drop_schedule']}" if lexical or entry.get("drop_schedule") else ""
    return "  ".join(filter(None, [name, entry["state"], ",".join(notes), dropped, entry.get("reason") or ""]))


def _parts(reference: str) -> tuple[str, str]:
    model, _, version = reference.partition("@")
    if not (model and version):
        raise UsageError(f"{reference!r} is not MODEL@VERSION")
    return model, version


def _object(content: bytes) -> dict[str, Any]:
    """The JSON object that an answer contains; {} for the answers of other services, such as a page of HTML."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


TIMEOUT_SECONDS = 60.0


class AdminError(RuntimeError):
    """The service refused the request or could not be reached; the message says why."""


@dataclass(frozen=True, slots=True)
class Admin:
    """A client of one admin port, which uses no proxy."""

    url: str
    token: str = field(repr=False)
    context: ssl.SSLContext | None = None
    """The certificates to trust over https; by default those of the system's authorities, or of SSL_CERT_FILE."""

    def ask(self, method: str, *path: str, body: Any = None) -> dict[str, Any]:
        """Send a request to `/v1/<path>`; returns the answer. Raises AdminError, also for an invalid URL or token."""
        direct = httpx.HTTPTransport(verify=self.context or ssl.create_default_context())
        place = "/v1/" + "/".join(quote(part, safe="") for part in path)
        try:
            with open_client(self.url, api_key=self.token, timeout=TIMEOUT_SECONDS, transport=direct) as client:
                response = client.request(method, place, json=body)
        except httpx.HTTPError as error:
            raise AdminError(f"the admin port at {self.url} did not answer: {error}") from error
        except ValueError as error:
            raise AdminError(str(error)) from None
        answer = _object(response.content)
        if not response.is_success:
            failure = answer.get("error")
            message = failure.get("message") if isinstance(failure, dict) else None
            raise AdminError(str(message or f"{self.url} answered with status {response.status_code}"))
        if not {"state", "label"} & answer.keys():
            raise AdminError(f"{self.url} is not an admin port, whose number is CERBERANK_ADMIN_PORT")
        return answer
