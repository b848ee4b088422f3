"""Starts the measured servers as processes: `cerberank serve`, and infinity-emb in its own environment.

The service is started by its command, as users do, because training packages must not import it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path

import httpx

from cerberank_models.python_process import python_command

START_SECONDS = 300.0
STOP_SECONDS = 30.0
LOOK_SECONDS = 0.02
ServerSettings = Mapping[str, str | float | None]
"""Settings of the service by name; None keeps the service's default."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server, and an HTTP client for it."""

    client: httpx.Client
    process_id: int

    @property
    def resident_bytes(self) -> int:
        """The current memory of the process; 0 if the system does not report it."""
        try:
            pages = Path(f"/proc/{self.process_id}/statm").read_text(encoding="ascii").split()[1]
        except OSError:
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


class ServerError(RuntimeError):
    """A server did not become ready; the message ends with its output."""


@contextmanager
def cerberank_server(
    checkpoint: Path | None,
    scratch: Path,
    settings: ServerSettings,
    *,
    remaining: Callable[[], float] = lambda: inf,
) -> Iterator[Server]:
    """Run `cerberank serve` with `settings` as CERBERANK_* variables; by default questions may queue for an hour.

    The log is in the folder `scratch`. The start and the end each take at most the seconds that `remaining` returns at
    that time, or one second. Raises ServerError if the server is not ready in time.
    """
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CERBERANK_")}
    environment["CERBERANK_QUEUE_SECONDS"] = "3600"  # closed loops fill the queue on purpose
    environment |= {f"CERBERANK_{name.upper()}": str(value) for name, value in settings.items() if value is not None}
    environment["CERBERANK_PORT"] = str(port)
    if checkpoint is not None:
        environment["CERBERANK_CHECKPOINT"] = str(checkpoint)
    command = python_command("cerberank", "serve")
    log = scratch / "cerberank.log"
    with _client(port) as client:
        ready = partial(_succeeds, client, "/health/ready")
        with running_program(command, log, ready, environment=environment, remaining=remaining) as process:
            yield Server(client, process.pid)


@contextmanager
def infinity_server(python: Path, model: Path, scratch: Path, *, dtype: str) -> Iterator[Server]:
    """Run `infinity_emb v2` on the CPU in `dtype`, float32 or bfloat16. Raises ServerError."""
    port = free_port()
    options = ["--engine", "torch", "--device", "cpu", "--dtype", dtype, "--no-bettertransformer"]
    address = ["--host", "127.0.0.1", "--port", str(port)]
    command = [str(python.with_name("infinity_emb")), "v2", "--model-id", str(model), *options, *address]
    # The server has its own environment and must not import this one's libraries.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HF_HUB_OFFLINE": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
    log = scratch / "infinity.log"
    with _client(port) as client:
        ready = partial(_succeeds, client, "/health")
        with running_program(command, log, ready, environment=environment) as process:
            yield Server(client, process.pid)


@contextmanager
def running_program(
    command: Sequence[str],
    log: Path,
    ready: Callable[[], bool],
    *,
    seconds: float = START_SECONDS,
    remaining: Callable[[], float] = lambda: inf,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends; the block begins when it is `ready`, which takes at most so many `seconds`.

    Raises ServerError.
    """
    log.parent.mkdir(exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        end = time.monotonic() + min(seconds, max(1.0, remaining()))
        while process.poll() is None and time.monotonic() < end:
            if ready():
                break
            time.sleep(LOOK_SECONDS)
        else:  # it has ended, or the time has
            printed = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise ServerError(f"{Path(command[0]).name} did not become ready:\n{printed}")
        yield process
    finally:
        process.terminate()
        try:
            process.wait(min(STOP_SECONDS, max(1.0, remaining())))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _client(port: int) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600.0)


def _succeeds(client: httpx.Client, probe: str) -> bool:
    try:
        return client.get(probe).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False  # it does not listen yet
