"""`cerberank serve`: runs the app, and the admin app if it has a token, in uvicorn servers until a signal arrives.

Each server runs in a thread with its own event loop. The main thread waits for signals and performs the shutdown.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from types import MappingProxyType

import uvicorn
from fastapi import FastAPI
from prometheus_client import disable_created_metrics
from starlette.types import ASGIApp

from cerberank_models import __version__
from cerberank_models.backends.processors import compute_threads
from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.commands.values import Whole
from cerberank_models.convert.checkpoint_cache import ModelImportError
from cerberank_models.output import note
from cerberank_service.access.key_file import KeysError
from cerberank_service.admin import create_admin
from cerberank_service.app import create_app
from cerberank_service.certificate import CHECK_SECONDS, Certificate
from cerberank_service.http.connections import ChangesHeaders, Headers, IgnoresLostClients, without_header
from cerberank_service.service import Service
from cerberank_service.settings import Settings, read_settings
from cerberank_service.settings.environment import logs_json, missing_temporary_folder
from cerberank_service.telemetry.logs import FIELDS, configure_logs
from cerberank_service.telemetry.tracing import open_provider
from cerberank_service.versions.single import UnusableError

logger = logging.getLogger(__name__)

ADMIN_HOST = "127.0.0.1"
"""The address of the admin port, so that only the machine, container or pod reaches it."""
GRACE_SECONDS = 5
"""Seconds after the drain time for sending the last answers."""
POLL_SECONDS = 0.01
SWITCH_SECONDS = 0.0005
"""Python's switch interval: the seconds for which a thread keeps the GIL while others wait for it. A request passes
through several threads. With Python's default of 5 ms, each could wait that long for a thread that parses a large body.
"""

Ending = SimpleQueue[int | Exception]
"""A queue of reasons to stop: the number of a received signal, 0 when a server has ended, or the error of a checkpoint
that cannot be served. `SimpleQueue.put` is reentrant, which signal handlers need."""


CLOSE = (b"connection", b"close")


def closing(service: Service, headers: Headers) -> Headers:
    """The headers of an answer, with `Connection: close` after SIGTERM.

    Without it a client might send its next request on a connection that the server is just closing.
    """
    return [*without_header(headers, CLOSE[0]), CLOSE] if service.leaving else headers


class Server:
    """A uvicorn server in a thread."""

    def __init__(self, name: str, config: uvicorn.Config, ending: Ending, *, content: str, port_setting: str) -> None:
        """Create the server without listening. When it has ended it puts 0 into `ending`, or why it cannot listen.

        `content` describes in the log what its address has, and `port_setting` names another port.
        """
        self._server = uvicorn.Server(config)
        self._ending = ending
        self._content = content
        self._port_setting = port_setting
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start, and wait until the server listens or has ended."""
        self._thread.start()
        while self._thread.is_alive() and not self._server.started:
            self._thread.join(POLL_SECONDS)
        if self._server.started:
            logger.info("running on %s (%s)", self._url(), self._content)

    def stop(self, *, at_once: bool = False) -> None:
        """Close the listening socket; end after the requests in progress are answered, or `at_once`."""
        self._server.force_exit = at_once
        self._server.should_exit = True

    def join(self, seconds: float) -> None:
        """Wait for the thread to end, at most `seconds`."""
        self._thread.join(seconds)

    def _run(self) -> None:
        end: int | Exception = 0
        try:
            self._server.run()
        except SystemExit:  # uvicorn has logged the reason
            end = OSError(f"cannot listen on {self._url()}; name another port with {self._port_setting}")
        finally:
            self._ending.put(end)

    def _url(self) -> str:
        config = self._server.config
        port = self._server.servers[0].sockets[0].getsockname()[1] if self._server.started else config.port
        host = f"[{config.host}]" if ":" in config.host else config.host
        return f"{'https' if config.is_ssl else 'http'}://{host}:{port}"


HEAD_BYTES = 32 * 1024
"""Largest size of a request's path and headers."""
UNSET: Mapping[str, str | None] = MappingProxyType({"model": "", "checkpoint": None, "store": ""})
"""The settings that name what is served, as they are where none of them is set."""


def serve(
    model: str | None = None,
    *,
    host: str | None = None,
    port: Whole | None = None,
    store: str | None = None,
) -> int:
    """Answer ranking requests over HTTP, until a signal ends the process.

    Without a model or --store it serves the bundled checkpoint. All other settings are environment variables
    CERBERANK_*, which `cerberank settings` shows. An option is stronger than its variable; a model or a store
    replaces CERBERANK_MODEL, CERBERANK_CHECKPOINT and CERBERANK_STORE.

    Args:
        model: Checkpoint folder, or a Hugging Face cross-encoder (a folder, or a hub id, perhaps with @REVISION), which
            is imported once.
        host: Address to listen on (default: 127.0.0.1).
        port: Port to listen on (default: 8000).
        store: Store to follow: a folder or an fsspec URL.
    """
    if model == BUNDLED.name and not Path(model).exists():
        model = str(BUNDLED)
    checkpoint = None
    if model is not None and (Path(model) / "manifest.json").is_file():
        checkpoint, model = model, None
    options = {
        "model": model,
        "host": host,
        "port": port,
        "checkpoint": checkpoint,
        "store": store,
    }
    values = {name: str(value) for name, value in options.items() if value is not None}
    # Together they are stronger than the variables of all of them: the gpu image sets CERBERANK_CHECKPOINT.
    return serve_with({**UNSET, **values} if values.keys() & UNSET.keys() else values)


def serve_with(options: Mapping[str, str | None]) -> int:
    """Serve with the settings `options`, by the names of their fields, and the environment; returns the exit code.

    It is 1 if another start may end otherwise, and 2 for wrong settings, after which systemd does not start it again.
    """
    try:
        settings = read_settings(options)
        app = assemble(settings)
        return _ended(run(app, settings), app.state.service)
    except UnusableError as error:
        return _failed(error, error.exit_code)
    except (KeysError, OSError) as error:  # a file of keys or certificates, or a folder, which can be repaired
        return _failed(error, 1)
    except (ValueError, ModelImportError) as error:  # settings, an unknown kind of store
        return _failed(error, 2)


def _failed(error: Exception, code: int) -> int:
    """Say why the service cannot start, as a line of the log if that is JSON; returns the exit code."""
    if logs_json():
        configure_logs(Settings.model_construct(log_format="json"))  # changes nothing if that was done
        logger.critical("cerberank serve: %s", error)
    else:
        note(f"cerberank serve: {error}")
    return code


def _ended(code: int, service: Service) -> int:
    """Return the exit code, or exit with it at once if a thread is still running, such as one that loads a model.

    Neither the load of a model nor a hanging model call can be interrupted. If the interpreter ended normally, such a
    thread would be unwound when it returns from the library, and C++ would abort the process (exit code 134).
    """
    service.tracing.close()  # exports spans that `os._exit` would lose, and ends its thread
    if any(thread.daemon for thread in threading.enumerate()):
        logging.shutdown()
        os._exit(code)
    return code


def assemble(settings: Settings) -> FastAPI:
    """Configure the process's logs and traces, and return the app.

    Raises SettingsError, or the error of reading a file that a setting names.
    """
    provider = open_provider() if settings.traces else None
    configure_logs(settings)
    if folder := missing_temporary_folder():
        logger.warning("TMPDIR=%s is not a folder: the system's temporary folder is used instead", folder)
    served = settings.store or settings.model or settings.checkpoint or "the bundled model"
    fields = {
        "release": __version__,
        "serves": str(served),
        "device": settings.device,
        "threads": compute_threads(settings.threads or None),
    }
    logger.info("cerberank starts", extra={FIELDS: fields})
    sys.setswitchinterval(SWITCH_SECONDS)
    disable_created_metrics()  # type: ignore[no-untyped-call] # a quarter of all samples, which nothing uses
    return create_app(settings, tracer_provider=provider)


def run(app: FastAPI, settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT, or until a server ends; returns the exit code.

    Raises OSError or ValueError for an unusable certificate, OSError when no folder for local copies can be created,
    and UnusableError, SourceError, ModelImportError or ModuleNotFoundError when the single checkpoint turns out to be
    unusable.
    """
    service: Service = app.state.service
    ending: Ending = SimpleQueue()
    public = ChangesHeaders(app, partial(closing, service))
    service.certificate = _certificate(settings)
    config = _config(public, settings, host=settings.host, port=settings.port, certificate=service.certificate)
    content = "a playground, /docs, /status and the API"
    servers = [Server("server", config, ending, content=content, port_setting="--port or CERBERANK_PORT")]
    if settings.admin_token is not None:
        admin = create_admin(service)
        config = _config(
            admin,
            settings,
            certificate=_certificate(settings),
            host=ADMIN_HOST,
            port=settings.admin_port,
        )
        servers.append(
            Server("admin-server", config, ending, content="the admin port", port_setting="CERBERANK_ADMIN_PORT")
        )
    service.open(ending.put)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: ending.put(number))
    # Hooks that renew files send SIGHUP. It is ignored because renewed certificates and keys are noticed without it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for server in servers:
        server.start()
    cause = ending.get()
    if signalled := isinstance(cause, int) and cause != 0:
        logger.info(
            "%s was received: not ready for %g seconds (lame duck), then at most %g seconds for accepted questions",
            signal.Signals(cause).name,
            settings.lame_duck_seconds,
            settings.drain_seconds,
        )
        _shut_down(servers, service, settings, ending)
    for server in servers:
        server.stop()
        server.join(GRACE_SECONDS)
    if isinstance(cause, Exception):
        raise cause
    return 0 if signalled else 1


def _shut_down(servers: list[Server], service: Service, settings: Settings, ending: Ending) -> None:
    """Become not ready for the lame-duck time, so that load balancers notice; then answer accepted requests.

    A further signal ends the lame-duck time; during the drain time it ends the process.
    """
    public = servers[0]
    service.leave()
    _wait(ending, settings.lame_duck_seconds)
    service.refuse()
    public.stop()
    if _wait(ending, settings.drain_seconds):
        public.stop(at_once=True)
    service.versions.stop()


def _wait(ending: Ending, seconds: float) -> int | Exception | None:
    """Wait at most `seconds` for the next entry of `ending`; None without one."""
    try:
        return ending.get(timeout=seconds)
    except Empty:
        return None


def _certificate(settings: Settings) -> Certificate | None:
    """The certificate for one server; None without TLS. Raises OSError."""
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    try:
        return Certificate(settings.tls_certificate, settings.tls_key)
    except OSError as error:
        raise OSError(f"CERBERANK_TLS_CERTIFICATE and CERBERANK_TLS_KEY cannot be used: {error}") from error


def _config(
    app: ASGIApp, settings: Settings, *, host: str, port: int, certificate: Certificate | None
) -> uvicorn.Config:
    config = uvicorn.Config(
        IgnoresLostClients(app),
        host=host,
        port=port,
        http="h11",
        h11_max_incomplete_event_size=HEAD_BYTES,
        ws="none",
        log_config=None,
        access_log=settings.log_level == "debug",
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_keep_alive=math.ceil(settings.keep_alive_seconds),
        timeout_graceful_shutdown=math.ceil(settings.drain_seconds) + GRACE_SECONDS,
        timeout_notify=CHECK_SECONDS,
    )
    if certificate is not None:
        config.ssl_context_factory = lambda config, default: certificate.context
        config.callback_notify = certificate.reload_if_changed
    return config
