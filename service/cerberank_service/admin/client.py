"""A client of the admin port that uses the standard library alone, and no proxy, which would see the token."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlsplit

TIMEOUT_SECONDS = 60.0


class AdminError(RuntimeError):
    """The service refused the request or could not be reached; the message says why."""


class Admin:
    """A client of one admin port."""

    def __init__(self, url: str, token: str, context: ssl.SSLContext | None = None) -> None:
        """`context` says whom to trust over https, by default the system's authorities.

        Raises AdminError for an invalid address.
        """
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise AdminError(f"{url} is no http or https address")
        self._url, self._token, self._base = url, token, parts.path.rstrip("/")
        self._connect: Callable[[], HTTPConnection] = lambda: HTTPConnection(
            parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS
        )
        if parts.scheme == "https":
            trusted = context or ssl.create_default_context()
            self._connect = lambda: HTTPSConnection(
                parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS, context=trusted
            )

    def ask(self, method: str, *path: str, body: Any = None) -> dict[str, Any]:
        """Send a request to `/v1/<path>`; returns the answer. Raises AdminError."""
        connection = self._connect()
        try:
            place = self._base + "/v1/" + "/".join(quote(part, safe="") for part in path)
            headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
            connection.request(method, place, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            content = json.loads(response.read())
        except (OSError, HTTPException, ValueError) as error:
            raise AdminError(f"the admin port at {self._url} did not answer: {error}") from error
        finally:
            connection.close()
        if response.status >= 300:
            raise AdminError(content.get("error", {}).get("message", f"status {response.status}"))
        return dict(content)
