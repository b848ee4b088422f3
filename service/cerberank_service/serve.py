"""`cerberank serve`: runs the app, and the admin app, in a uvicorn process with graceful shutdown."""

from __future__ import annotations

import argparse
import math
import signal
import sys
from socket import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

from cerberank_service.admin.app import create_admin
from cerberank_service.app import create_app
from cerberank_service.http.protocol import bounded
from cerberank_service.memory import keep_spare_memory, return_large_arrays
from cerberank_service.service import Service
from cerberank_service.settings import Settings, read_settings
from cerberank_service.settings.limits import PRODUCTION, Limits
from cerberank_service.telemetry.logs import configure_logs
from cerberank_service.telemetry.tracing import open_provider

GRACE_SECONDS = 5
"""Time after the drain time for sending the last answers."""
SWITCH_SECONDS = 0.0005
"""Python's switch interval: how long a thread keeps the GIL while others wait for it. An answer passes through several
threads; with Python's default of 5 ms each of them could wait that long for a thread that reads a large body."""


class Server(uvicorn.Server):
    """A uvicorn server that begins the service's graceful shutdown before it closes the sockets.

    The shutdown does not begin in the signal handler, which may interrupt a holder of one of the service's locks.
    """

    def __init__(self, config: uvicorn.Config, service: Service, admin: uvicorn.Server | None = None) -> None:
        """`service` belongs to the app; `admin` is started and stopped with this server, on the same event loop."""
        super().__init__(config)
        self._service, self._admin = service, admin

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the main loop. Uvicorn's own handler would raise the signal again after a clean shutdown."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Listen, then on the admin port too, on the same event loop."""
        await super().startup(sockets)
        self._service.large_bodies.start()
        if self._admin is not None:
            self._admin.config.load()
            self._admin.lifespan = self._admin.config.lifespan_class(self._admin.config)
            await self._admin.startup()

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Refuse new requests, then let uvicorn close its sockets and wait for the requests in progress."""
        self._service.begin_shutdown()
        await super().shutdown(sockets)
        if self._admin is not None:
            await self._admin.shutdown()


def main(argv: list[str], limits: Limits = PRODUCTION) -> int:
    """Run the verb until a signal ends it; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="cerberank serve", description="Serve a checkpoint. Settings are environment variables CERBERANK_*."
    )
    parser.parse_args(argv)
    try:
        settings = read_settings()
        app = assemble(settings, limits)
    except (ValueError, OSError) as error:  # settings, keys, a store of an unknown kind
        sys.stderr.write(f"cerberank serve: {error}\n")
        return 2
    run(app, settings, limits)
    return 0


def assemble(settings: Settings, limits: Limits = PRODUCTION) -> FastAPI:
    """The app; also configures the process's logs, traces and memory allocator.

    Raises SettingsError, or the error of reading a file that a setting names.
    """
    provider = open_provider() if settings.traces else None
    configure_logs(settings)
    return_large_arrays()
    keep_spare_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    return create_app(settings, tracer_provider=provider, limits=limits)


def run(app: FastAPI, settings: Settings, limits: Limits = PRODUCTION) -> None:
    """Serve until SIGTERM or SIGINT."""
    service: Service = app.state.service
    admin = None
    if settings.admin_token is not None:
        admin_app = create_admin(settings, service.versions, service.operations, service.metrics)
        admin = uvicorn.Server(_config(admin_app, settings, limits, settings.admin_host, settings.admin_port))
    Server(_config(app, settings, limits, settings.host, settings.port), service, admin).run()


def _config(app: FastAPI, settings: Settings, limits: Limits, host: str, port: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=bounded(limits.head_bytes, limits.client_seconds),
        ws="none",
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        log_config=None,
        access_log=settings.log_level == "debug",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=math.ceil(settings.keep_alive_seconds),
        timeout_graceful_shutdown=int(settings.drain_seconds) + GRACE_SECONDS,
    )
