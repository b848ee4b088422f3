"""Answers requests for the service's own host names alone, so that a page of another site cannot ask by DNS rebinding.

Such a page has a name of its own resolve to the service's address: for the browser both are then one origin, but its
requests still have that name in `Host`. The names are compared as starlette's TrustedHostMiddleware does; the error is
in the format of the path, and a port or an IPv6 address may stand in `Host`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from cerberank_service.errors import Kind, ServiceError
from cerberank_service.http.error_responses import ErrorResponses

HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:@/?#\[\]]+)(:\d*)?")
"""A name or an address, and a port."""
ANY_HOST = frozenset(
    {"/health", "/health/live", "/health/ready", "/ping", "/v2/health/live", "/v2/health/ready", "/metrics"}
)
"""Paths that are answered for any host, because load balancers, Kubernetes and Prometheus ask by address."""


class AllowedHosts:
    """An ASGI middleware that refuses requests for other hosts with 400."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str], errors: ErrorResponses) -> None:
        """`hosts` are names and addresses (`[::1]`), `*.example.org` for all names below one, or `*` for any."""
        self._app, self._errors = app, errors
        self._hosts = [host.lower() for host in hosts]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with the error."""
        app = self._app
        if scope["type"] == "http" and scope["path"] not in ANY_HOST and not self._allows(Request(scope)):
            error = ServiceError(
                Kind.MALFORMED,
                "this service does not answer to the name in the header Host; CERBERANK_ALLOWED_HOSTS lists its names",
                reason="a host that is not allowed",
            )
            app = await self._errors.of_path(Request(scope), error)
        await app(scope, receive, send)

    def _allows(self, request: Request) -> bool:
        found = HOST.fullmatch(request.headers.get("host", "").lower())
        host = "" if found is None else found[1]
        return any(
            allowed in {"*", host} or (allowed.startswith("*.") and host.endswith(allowed[1:]))
            for allowed in self._hosts
        )
