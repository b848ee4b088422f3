"""Starts the measured servers as processes: `cerberank serve`, and infinity-emb in its own environment.

The service is started by its command, as users do, because training packages must not import it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from cerberank_models.python_process import python_command

START_SECONDS = 300.0
STOP_SECONDS = 30.0
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
    remaining: Callable[[], float] = lambda: float("inf"),
) -> Iterator[Server]:
    """Run `cerberank serve` with `settings` as CERBERANK_* variables; by default questions may queue for an hour.

    The log is in the folder `scratch`. The start and the end each take at most the seconds that `remaining` returns at
    that time, or one second. Raises ServerError if the server is not ready in time.
    """
    port = _free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CERBERANK_")}
    environment["CERBERANK_QUEUE_SECONDS"] = "3600"  # closed loops fill the queue on purpose
    environment |= {f"CERBERANK_{name.upper()}": str(value) for name, value in settings.items() if value is not None}
    environment["CERBERANK_PORT"] = str(port)
    if checkpoint is not None:
        environment["CERBERANK_CHECKPOINT"] = str(checkpoint)
    command = python_command("cerberank", "serve")
    with _running(
        command, environment, port, "/health/ready", scratch / "cerberank.log", remaining=remaining
    ) as server:
        yield server


@contextmanager
def infinity_server(python: Path, model: Path, scratch: Path, *, dtype: str) -> Iterator[Server]:
    """Run `infinity_emb v2` on the CPU in `dtype`, float32 or bfloat16. Raises ServerError."""
    port = _free_port()
    options = ["--engine", "torch", "--device", "cpu", "--dtype", dtype, "--no-bettertransformer"]
    address = ["--host", "127.0.0.1", "--port", str(port)]
    command = [str(python.with_name("infinity_emb")), "v2", "--model-id", str(model), *options, *address]
    # The server has its own environment and must not import this one's libraries.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HF_HUB_OFFLINE": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
    with _running(command, environment, port, "/health", scratch / "infinity.log") as server:
        yield server


@contextmanager
def _running(
    command: Sequence[str],
    environment: Mapping[str, str],
    port: int,
    probe: str,
    log: Path,
    *,
    remaining: Callable[[], float] = lambda: float("inf"),
) -> Iterator[Server]:
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=dict(environment), stdout=output, stderr=output)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600.0) as client:
            _wait_until_ready(client, probe, process, log, min(START_SECONDS, max(1.0, remaining())))
            yield Server(client, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(min(STOP_SECONDS, max(1.0, remaining())))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(
    client: httpx.Client, probe: str, process: subprocess.Popen[bytes], log: Path, patience: float
) -> None:
    end = time.monotonic() + patience
    while time.monotonic() < end and process.poll() is None:
        try:
            if client.get(probe).status_code == 200:
                return
        except httpx.TransportError:
            pass  # not listening yet
        time.sleep(0.2)
    output = log.read_text(encoding="utf-8", errors="replace")[-2000:]
    raise ServerError(f"{Path(process.args[0]).name} did not become ready:\n{output}")  # type: ignore[index,arg-type]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
