"""The real program, `cerberank serve`, in a process of its own, and what tools and tests need around it."""

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
"""Enough to import a small model first."""
LONGEST_SECONDS, LOOK_SECONDS = 90.0, 0.1
SERVE = ("-m", "cerberank", "serve")
ROOT = Path(__file__).resolve().parents[1]


class MissingProgramError(Exception):
    """A program that pip does not bring is not installed; the message names the package that has it."""


def installed(program: str, package: str) -> str:
    """The path of a program, /usr/sbin included. Raises MissingProgramError, which skips a test."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        raise MissingProgramError(f"needs {program} (Debian's {package})")
    return found


@dataclass
class Process:
    """A running service."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    @property
    def admin_url(self) -> str | None:
        """The address of the admin port, once it is open."""
        found = re.findall(r"running on (https?://[\d.:]+)", self.log.read_text())
        return found[1] if len(found) > 1 else None

    @property
    def megabytes(self) -> float:
        """The memory that the process and its children hold."""
        pids = [str(self.process.pid)]
        for task in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            pids += task.read_text().split()
        found = [re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text()) for pid in pids]
        return sum(int(each[1]) for each in found if each is not None) / 1024.0

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.process.send_signal(signal.SIGTERM)


def launch(checkpoint: Path, log: Path, *, program: Sequence[str] = SERVE, **settings: str) -> subprocess.Popen[bytes]:
    """Start the program on a free port, without waiting for anything; its output goes to `log`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CERBERANK_")}
    environment |= {"CERBERANK_CHECKPOINT": str(checkpoint), "CERBERANK_PORT": "0", **settings}
    with log.open("wb") as output:
        return subprocess.Popen([sys.executable, *program], env=environment, stderr=output, stdout=output, cwd=ROOT)


def start(checkpoint: Path, log: Path, *, program: Sequence[str] = SERVE, **settings: str) -> Process:
    """Start the service on a free port and wait until it listens; it may still be loading."""
    process = launch(checkpoint, log, program=program, **settings)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(r"running on (https?://[\d.:]+)", log.read_text()):
            return Process(process, found[1], log)
        time.sleep(0.05)
    process.kill()
    raise AssertionError(f"the service did not start:\n{log.read_text()}")


def wait_until_ready(service: Process) -> None:
    """Poll the readiness probe."""
    end = time.monotonic() + START_SECONDS
    with httpx.Client() as client:  # which takes 20 ms of a processor to make
        while client.get(f"{service.url}/health/ready").status_code != 200:
            assert time.monotonic() < end, service.log.read_text()
            time.sleep(0.05)


@contextmanager
def serving(checkpoint: Path, log: Path, **settings: str) -> Iterator[Process]:
    """A ready service; killed at the end if it still runs."""
    running = start(checkpoint, log, **settings)
    try:
        wait_until_ready(running)
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def until(condition: Callable[[], object], *, seconds: float = LONGEST_SECONDS, every: float = LOOK_SECONDS) -> float:
    """Seconds until the condition holds, looked at `every` so often; raises TimeoutError when it does not."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() > begin + seconds:
            raise TimeoutError(f"waited in vain for {seconds:g} seconds")
        time.sleep(every)
    return time.monotonic() - begin


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def another_machine(*, yielding: bool) -> ThreadPoolExecutor:
    """One thread for what happens on other machines in life: pushers and attackers must not take the service's time.

    `yielding` puts it, and every process that it starts, into Linux' idle class: what it does then takes the time that
    the service and its clients leave. Under another full load it would hardly get any, which is why tests do without.
    """
    return ThreadPoolExecutor(1, thread_name_prefix="elsewhere", initializer=_yield if yielding else None)


def _yield() -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
