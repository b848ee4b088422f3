"""ASGI middlewares around an app: answers to clients that are gone and to HEAD, and headers of the server."""

from __future__ import annotations

import asyncio

from h11 import LocalProtocolError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class WithoutHeader:
    """Leaves a header out of every answer, for a server that adds it itself."""

    def __init__(self, app: ASGIApp, name: bytes) -> None:
        """Surround `app`; `name` is in lower case."""
        self._app = app
        self._name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def without_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [header for header in message["headers"] if header[0].lower() != self._name]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, without_header)
