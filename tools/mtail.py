"""Runs Debian's mtail with the program and the options of `deploy/mtail`, on free ports."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx

from cerberank_benchmarks.clients.server import free_port, running_program
from tools.process import ROOT, installed, listens

FOLDER = ROOT / "deploy" / "mtail"


@dataclass(frozen=True)
class Counting:
    """A running mtail."""

    log: str
    """The address to which nginx sends its lines."""
    page: str
    """The address of its metrics."""
    process: subprocess.Popen[bytes]

    @property
    def changes(self) -> Mapping[str, str]:
        """The values that `tools.nginx.configure` replaces in nginx' configuration."""
        return {"127.0.0.1:5140": self.log, "127.0.0.1:3903": self.page}

    def value(self, name: str) -> int:
        """A counter of the proxy: `answered` or `failed`."""
        return self._sample(f"cerberank_proxy_{name}_total")

    def lines(self) -> int:
        """The lines of the log that it has read."""
        return self._sample("mtail_lines_total")

    def _sample(self, name: str) -> int:
        (value,) = re.findall(rf"^{name} (\d+)$", httpx.get(f"http://{self.page}/metrics").text, re.MULTILINE)
        return int(value)


@contextmanager
def counting() -> Iterator[Counting]:
    """An mtail that listens. Raises MissingProgramError."""
    page = free_port()
    with socket.socket(type=socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        log = f"127.0.0.1:{free.getsockname()[1]}"
    replaced = {"/etc/mtail": str(FOLDER), "udp://127.0.0.1:5140": f"udp://{log}"}
    command = [installed("mtail", "mtail"), *(replaced.get(option, option) for option in options()), "-port", str(page)]
    with running_program(command, Path(os.devnull), partial(listens, page), seconds=10.0) as process:
        yield Counting(log, f"127.0.0.1:{page}", process)


def options() -> list[str]:
    """The options with which the image runs mtail."""
    text = (FOLDER / "Dockerfile").read_text()
    return [
        word for _, line in re.findall(r"^(ENTRYPOINT|CMD) (\[.+\])$", text, re.MULTILINE) for word in json.loads(line)
    ][1:]
