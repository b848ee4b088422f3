"""Replicas that follow one store, behind the proxy of `deploy/nginx`. A replica is restarted whenever it ends."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from cerberank_benchmarks.clients.server import free_port
from cerberank_service.versions import copy_process
from tools.nginx import Proxy, proxying
from tools.process import LOOK_SECONDS, Process, launch, until

CLOCK = Path(__file__).with_name("clock.c")
PROGRAM = ("-m", "tools.hanging")
COPY_SECONDS = 15
"""Time limit of a copy in seconds; it is short because some faults make copies hang."""


@dataclass
class Replica:
    """A service whose port stays the same over restarts; its files are in `folder`."""

    folder: Path
    store: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    starts: int = 0

    def __post_init__(self) -> None:
        """Create the folder for copies and the clock's file."""
        self.temporary.mkdir(parents=True, exist_ok=True)
        self.set_clock(0)
        self._stopping = threading.Event()

    @property
    def temporary(self) -> Path:
        """The folder for copies of versions."""
        return self.folder / "tmp"

    @property
    def clock(self) -> Path:
        """The file with the offset of the replica's wall clock."""
        return self.folder / "clock"

    @property
    def hang(self) -> Path:
        """The file that makes all model calls of this replica hang while it exists."""
        return self.folder / "hang"

    @property
    def url(self) -> str:
        """The replica's own address, without the proxy."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the current process."""
        return self.process.pid

    def start(self) -> None:
        """Start a process, and restart it whenever it ends."""
        self._launch()
        self._watcher = threading.Thread(target=self._restart)
        self._watcher.start()

    def stop(self) -> None:
        """End the process without a restart."""
        self._stopping.set()
        self._watcher.join()
        self.process.kill()
        self.process.wait()

    def set_clock(self, seconds: int) -> None:
        """Set the offset of the replica's wall clock from the machine's, with immediate effect."""
        with self.clock.open("r+b" if self.clock.exists() else "wb") as file:  # kept, because the process has mapped it
            file.write(seconds.to_bytes(8, sys.byteorder, signed=True))

    def ready(self) -> bool:
        """True if the readiness probe succeeds."""
        try:
            return httpx.get(f"{self.url}/health/ready", timeout=2.0).status_code == 200
        except httpx.HTTPError:
            return False

    def live(self) -> bool:
        """True unless the liveness probe fails; a time-out does not count as a failure here."""
        try:
            return httpx.get(f"{self.url}/health/live", timeout=2.0).status_code == 200
        except httpx.TimeoutException:
            return True

    def copying(self) -> int | None:
        """The id of the process that is copying a version for the replica; None without one."""
        for child in Path(f"/proc/{self.pid}/task").glob("*/children"):
            for number in child.read_text().split():
                with suppress(OSError):
                    if copy_process.__name__.encode() in Path(f"/proc/{number}/cmdline").read_bytes():
                        return int(number)
        return None

    def entries(self) -> dict[str, dict[str, Any]]:
        """The replica's entries of `/v1/models`, by version; empty if the replica does not answer."""
        try:
            models = httpx.get(f"{self.url}/v1/models", timeout=2.0).json()["models"]
        except (httpx.HTTPError, ValueError, KeyError):
            return {}
        return {entry["version"]: entry for entry in models if "version" in entry}

    def serves(self, version: str) -> bool:
        """True if this version serves as `stable`."""
        return "stable" in self.entries().get(version, {}).get("labels", ())

    def megabytes(self) -> float:
        """The resident memory of the process and its children."""
        return Process(self.process, self.url, self.log).megabytes

    @property
    def log(self) -> Path:
        """The log of the current process."""
        return self.folder / f"log-{self.starts}"

    def _launch(self) -> None:
        self.starts += 1
        settings = {
            "CERBERANK_STORE": str(self.store),
            "CERBERANK_PORT": str(self.port),
            "TMPDIR": str(self.temporary),
            "CERBERANK_COPY_SECONDS": str(COPY_SECONDS),
            "CLOCK_OFFSET_FILE": str(self.clock),
            "HANG_FILE": str(self.hang),
            **self.settings,
        }
        self.process: subprocess.Popen[bytes] = launch(Path(), self.log, program=PROGRAM, **settings)

    def _restart(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            if self.process.poll() is not None:
                self._launch()


def compile_clock(folder: Path) -> Path:
    """Compile `clock.c` to a library. Raises CalledProcessError, or FileNotFoundError without a compiler."""
    library = folder / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(CLOCK), "-ldl"], check=True)
    return library


@dataclass(frozen=True)
class Fleet:
    """The replicas and their proxy."""

    replicas: list[Replica]
    proxy: Proxy

    def ready(self) -> bool:
        """True if all replicas are ready."""
        return all(replica.ready() for replica in self.replicas)

    def complaints(self) -> list[str]:
        """The last warning or error of each replica's current process."""
        lines = [
            [line for line in r.log.read_text().splitlines() if " WARNING " in line or " ERROR " in line]
            for r in self.replicas
        ]
        return [each[-1][:300] if each else "" for each in lines]

    def serves(self, version: str) -> bool:
        """True if this version serves as `stable` in all replicas."""
        return all(replica.serves(version) for replica in self.replicas)


@contextmanager
def running(folder: Path, store: Path, *, count: int = 2, **settings: str) -> Iterator[Fleet]:
    """A ready fleet. `folder/replica-N/tmp` may already be mount points. Setting clocks needs `cc`."""
    if shutil.which("cc"):
        settings |= {"LD_PRELOAD": str(compile_clock(folder))}
    with ExitStack() as stack:
        replicas = [Replica(folder / f"replica-{number}", store, settings) for number in range(count)]
        for replica in replicas:
            replica.start()
            stack.callback(replica.stop)
        proxy = stack.enter_context(proxying(folder / "nginx", [replica.url for replica in replicas]))
        fleet = Fleet(replicas, proxy)
        until(fleet.ready)
        yield fleet
