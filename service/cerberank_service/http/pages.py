"""The HTML pages: a playground at `/`, the service's state at `/status` and Swagger UI at `/docs`.

They are static files, and load nothing from other hosts. Swagger UI is the copy in the package `fastapi-swagger`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

STATIC = Path(__file__).parent / "static"
PAGES = {"/": "playground.html", "/status": "status.html", "/docs": "docs.html"}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Assets(StaticFiles):
    """Scripts and styles with the pages' headers, so that browsers fetch those of a new release at once."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        """The response of `StaticFiles` with the pages' headers."""
        response = super().file_response(*args, **options)
        response.headers.update(HEADERS)
        return response


def add_pages(app: FastAPI) -> None:
    """Add the pages and their assets to `app`."""
    for path, name in PAGES.items():
        app.add_api_route(path, _page(name), methods=["GET"], include_in_schema=False, name=name)
    app.mount("/assets/swagger", Assets(packages=[("fastapi_swagger", "resources")]), name="swagger")
    app.mount("/assets", Assets(directory=STATIC), name="assets")


def _page(name: str) -> Callable[[], Awaitable[FileResponse]]:
    async def page() -> FileResponse:
        return FileResponse(STATIC / name, headers=HEADERS)

    return page
