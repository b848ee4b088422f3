"""ASGI middlewares around an app: clients that are gone, HEAD, requests that are refused unread, headers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from h11 import LocalProtocolError
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cerberank_service.errors import ServiceError
from cerberank_service.http.error_responses import ErrorResponses

LOST_SECONDS = 1.0
"""Seconds to wait for the end of a connection on which an answer could not be sent."""


class IgnoresLostClients:
    """Ends a request quietly when its answer cannot be sent, instead of letting the app count an internal error.

    uvicorn answers invalid bytes, such as a bad chunk in a body that nobody has read yet, with 400 by itself and closes
    the connection; h11 then refuses the app's own answer. This must surround the whole app, because Starlette's
    outermost middleware handles every exception that reaches it.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Surround `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; once a part of the answer cannot be sent, the other parts are discarded."""
        lost = False

        async def sending(message: Message) -> None:
            nonlocal lost
            if not lost:
                try:
                    await send(message)
                except (LocalProtocolError, OSError):
                    lost = True

        await self._app(scope, receive, sending)
        if lost:
            # uvicorn logs an error for an answer without an end, unless it knows that the connection has ended.
            try:
                async with asyncio.timeout(LOST_SECONDS):
                    while (await receive())["type"] != "http.disconnect":
                        pass
            except TimeoutError:
                pass


class AnswersHead:
    """Answers HEAD as GET, without the body (RFC 9110, 9.3.2). FastAPI's routes of GET do not answer to HEAD."""

    def __init__(self, app: ASGIApp) -> None:
        """Surround `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; HEAD as GET, whose body is not sent."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self._app({**scope, "method": "GET"}, receive, without_body)


class Guard:
    """Answers some requests with an error, before any route or body is looked at."""

    def __init__(self, app: ASGIApp, refusal: Callable[[Request], ServiceError | None], errors: ErrorResponses) -> None:
        """Surround `app`; `refusal` returns the error of a request, or None for one that passes."""
        self._app = app
        self._refusal = refusal
        self._errors = errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it in the error format of its path."""
        app = self._app
        if scope["type"] != "lifespan":
            error = self._refusal(Request(scope))
            if error is not None:
                app = await self._errors.of_path(Request(scope), error)
        await app(scope, receive, send)


Headers = list[tuple[bytes, bytes]]


class ChangesHeaders:
    """Changes the headers of every answer."""

    def __init__(self, app: ASGIApp, change: Callable[[Headers], Headers]) -> None:
        """Surround `app`; `change` is called when an answer starts."""
        self._app = app
        self._change = change

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def changing(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": self._change(message["headers"])}
            await send(message)

        await self._app(scope, receive, changing)


def without_header(headers: Headers, name: bytes) -> Headers:
    """The headers but for those of this name, which is in lower case."""
    return [header for header in headers if header[0].lower() != name]
