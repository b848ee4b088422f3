"""The real program, `cerberank serve`, in a process of its own on a checkpoint with random weights."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

START_SECONDS = 60.0


@dataclass
class Process:
    """A running service."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    @property
    def admin_url(self) -> str | None:
        """Where the admin port is, once it is open."""
        found = re.findall(r"running on (https?://[\d.:]+)", self.log.read_text())
        return found[1] if len(found) > 1 else None

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.process.send_signal(signal.SIGTERM)


SERVE = ("-m", "cerberank", "serve")
ROOT = Path(__file__).resolve().parents[2]


def launch(checkpoint: Path, log: Path, *, program: Sequence[str] = SERVE, **settings: str) -> subprocess.Popen[bytes]:
    """Start the program on a free port, without waiting for anything; its output goes to `log`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CERBERANK_")}
    environment |= {"CERBERANK_CHECKPOINT": str(checkpoint), "CERBERANK_PORT": "0", **settings}
    with log.open("wb") as output:
        return subprocess.Popen([sys.executable, *program], env=environment, stderr=output, stdout=output, cwd=ROOT)


def start(
    checkpoint: Path, log: Path, *, program: Sequence[str] = SERVE, seconds: float = START_SECONDS, **settings: str
) -> Process:
    """Start the service on a free port and wait until it listens, at most `seconds`; it may still be loading."""
    process = launch(checkpoint, log, program=program, **settings)
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(r"running on (https?://[\d.:]+)", log.read_text()):
            return Process(process, found[1], log)
        time.sleep(0.05)
    process.kill()
    raise AssertionError(f"the service did not start:\n{log.read_text()}")


def wait_until_ready(service: Process) -> None:
    """Poll the readiness probe."""
    end = time.monotonic() + START_SECONDS
    while httpx.get(f"{service.url}/health/ready").status_code != 200:
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


@pytest.fixture
def service(tiny_checkpoint: Path, tmp_path: Path) -> Iterator[Process]:
    """A service of its own for each test, which may stop it and count what it has answered."""
    with serving(tiny_checkpoint, tmp_path / "log", CERBERANK_ALIASES="rerank-v3.5") as running:
        yield running


@pytest.fixture(scope="session")
def shared_service(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One service for all tests of a worker that do nothing but ask; the rest take `service`."""
    log = tmp_path_factory.mktemp("shared-service") / "log"
    with serving(tiny_checkpoint, log, CERBERANK_ALIASES="rerank-v3.5") as running:
        yield running
