"""`cerberank serve`: the process around the app."""

from __future__ import annotations

import argparse
import signal
import sys
from socket import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

from cerberank_service.app import Service, create_app
from cerberank_service.logs import configure_logs
from cerberank_service.memory import return_large_arrays
from cerberank_service.settings import Settings, SettingsError, read_settings
from cerberank_service.tracing import open_provider

GRACE_SECONDS = 5
"""Beyond the drain time, for answers on their way out."""


class Server(uvicorn.Server):
    """Tells the service that it ends before the sockets close.

    Not in the signal's handler, which may interrupt the holder of a lock that the service needs.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        """`service` is the app's."""
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the main loop. Uvicorn's own handler would raise the signal again after a clean shutdown."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Refuse new requests, then let uvicorn close its sockets and wait for the others."""
        self._service.begin_shutdown()
        await super().shutdown(sockets)


def main(argv: list[str]) -> int:
    """Run the verb until a signal ends it; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="cerberank serve", description="Serve a checkpoint. Settings are environment variables CERBERANK_*."
    )
    parser.parse_args(argv)
    try:
        settings = read_settings()
        app = assemble(settings)
    except SettingsError as error:
        sys.stderr.write(f"cerberank serve: {error}\n")
        return 2
    run(app, settings)
    return 0


def assemble(settings: Settings) -> FastAPI:
    """The app, with logs, traces and memory set up for the process around it. Raises SettingsError."""
    provider = open_provider() if settings.traces else None
    configure_logs(settings)
    return_large_arrays()
    return create_app(settings, tracer_provider=provider)


def run(app: FastAPI, settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=settings.log_level == "debug",
        timeout_graceful_shutdown=int(settings.drain_seconds) + GRACE_SECONDS,
    )
    Server(config, app.state.service).run()
