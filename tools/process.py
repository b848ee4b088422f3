"""Runs `cerberank serve` in a process, with helpers for tools and tests."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

START_SECONDS = 120.0
"""Seconds to wait for the service; long enough to import a small model first."""
LONGEST_SECONDS, LOOK_SECONDS = 90.0, 0.1
SERVE = ("-m", "cerberank", "serve")
ADDRESS = re.compile(r"running on (https?://[\d.]+:\d+)")
"""The address of a port in the log, the public port's first."""
ROOT = Path(__file__).resolve().parents[1]


class MissingProgramError(Exception):
    """A program that pip cannot install is missing; the message names its Debian package."""


def installed(program: str, package: str) -> str:
    """The path of a program; /usr/sbin is searched too. Raises MissingProgramError, for which tests are skipped."""
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if path is None:
        raise MissingProgramError(f"needs {program} (Debian's {package})")
    return path


@dataclass
class Process:
    """A running service."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    @property
    def admin_url(self) -> str | None:
        """The address of the admin port, once it is open."""
        addresses = ADDRESS.findall(self.log.read_text())
        return addresses[1] if len(addresses) > 1 else None

    @property
    def megabytes(self) -> float:
        """The resident memory of the process and its children."""
        pids = [str(self.process.pid)]
        for task in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            pids += task.read_text().split()
        sizes = [re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text()) for pid in pids]
        return sum(int(size[1]) for size in sizes if size is not None) / 1024.0

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.process.send_signal(signal.SIGTERM)


def launch(checkpoint: Path, log: Path, *, program: Sequence[str] = SERVE, **settings: str) -> subprocess.Popen[bytes]:
    """Start the program on a free port without waiting for it; its output goes to `log`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CERBERANK_")}
    environment |= {"CERBERANK_CHECKPOINT": str(checkpoint), "CERBERANK_PORT": "0", **settings}
    with log.open("wb") as output:
        return subprocess.Popen([sys.executable, *program], env=environment, stderr=output, stdout=output, cwd=ROOT)


def start(checkpoint: Path, log: Path, *, program: Sequence[str] = SERVE, **settings: str) -> Process:
    """Start the service on a free port and wait until it listens; the model may still be loading."""
    process = launch(checkpoint, log, program=program, **settings)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        if address := ADDRESS.search(log.read_text()):
            return Process(process, address[1], log)
        time.sleep(0.05)
    process.kill()
    raise AssertionError(f"the service did not start:\n{log.read_text()}")


def wait_until_ready(service: Process) -> None:
    """Wait until the readiness probe succeeds."""
    end = time.monotonic() + START_SECONDS
    with httpx.Client() as client:  # created once, because that takes 20 ms of a processor
        while client.get(f"{service.url}/health/ready").status_code != 200:
            assert time.monotonic() < end, service.log.read_text()
            time.sleep(0.05)


@contextmanager
def serving(checkpoint: Path, log: Path, *, program: Sequence[str] = SERVE, **settings: str) -> Iterator[Process]:
    """A ready service, which is killed at the end of the block."""
    service = start(checkpoint, log, program=program, **settings)
    try:
        wait_until_ready(service)
        yield service
    finally:
        service.process.kill()
        service.process.wait()


def until(condition: Callable[[], object], *, seconds: float = LONGEST_SECONDS, every: float = LOOK_SECONDS) -> float:
    """Wait until the condition holds, checked `every` so many seconds, and return the seconds. Raises TimeoutError."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() > begin + seconds:
            raise TimeoutError(f"waited in vain for {seconds:g} seconds")
        time.sleep(every)
    return time.monotonic() - begin


def listens(port: int) -> bool:
    """True if a connection to the port of this machine is accepted."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def another_machine(*, yielding: bool) -> ThreadPoolExecutor:
    """A pool with one thread for work that happens on other machines in production, such as pushes and attacks.

    With `yielding` the thread, and every process that it starts, has Linux' idle class, so that it only takes processor
    time that the service and its clients leave. Tests do not use this, because on a busy machine it would hardly run.
    """
    return ThreadPoolExecutor(1, thread_name_prefix="elsewhere", initializer=_yield if yielding else None)


def _yield() -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
