"""Runs nginx with the configuration of `deploy/nginx`, in which port, paths and replicas are replaced."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from cerberank_benchmarks.clients.server import free_port, running_program
from tools.process import ROOT, installed, listens

CONFIGURATION = ROOT / "deploy" / "nginx"
START_SECONDS = 10.0


@dataclass(frozen=True)
class Proxy:
    """A running nginx."""

    url: str
    counts: str
    """The address of its own page of metrics."""
    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def log(self) -> str:
        """The text of the log: errors, and a JSON object for each request."""
        return (self.folder / "log").read_text()


def program() -> str:
    """The path of nginx. Raises MissingProgramError."""
    return installed("nginx", "nginx-light")


def configure(folder: Path, port: int, replicas: Sequence[str], changes: Mapping[str, str] | None = None) -> str:
    """Write the configuration to the new `folder`, with `port` and `replicas` (URLs); `changes` replace other texts.

    Return the address of nginx' page of metrics, which is on a free port.
    """
    shutil.copytree(CONFIGURATION, folder)
    servers = "\n".join(f"server {urlsplit(url).netloc} max_fails=0;" for url in replicas)
    counts = f"127.0.0.1:{free_port()}"
    replaced = {
        "/tmp/": f"{folder}/",
        "/dev/stdout": str(folder / "log"),
        "server cerberank:8000 max_fails=0 resolve;": servers,
        "listen 8000": f"listen {port}",
        "listen 3904": f"listen {counts}",
    }
    for text, new in {**replaced, **(changes or {})}.items():
        # A port that was put in before may begin with the digits of another one.
        place = re.compile(rf"{re.escape(text)}(?!\d)")
        files = [file for file in folder.glob("*.conf") if place.search(file.read_text())]
        assert files, f"{text!r} is not a text of {CONFIGURATION}"
        for file in files:
            file.write_text(new.join(place.split(file.read_text())))
    return f"http://{counts}"


def command(folder: Path, *arguments: str) -> list[str]:
    """The command line. Under root the workers run as root too, because they must enter pytest's folders."""
    options = "daemon off;" + (" user root;" if os.geteuid() == 0 else "")
    return [program(), "-p", str(folder), "-c", "nginx.conf", "-g", options, *arguments]


@contextmanager
def proxying(folder: Path, replicas: Sequence[str], changes: Mapping[str, str] | None = None) -> Iterator[Proxy]:
    """An nginx on a free port in front of `replicas`; its files are in the new `folder`."""
    port = free_port()
    counts = configure(folder, port, replicas, changes)
    listening = partial(listens, port)
    with running_program(command(folder), folder / "log", listening, seconds=START_SECONDS) as process:
        yield Proxy(f"http://127.0.0.1:{port}", counts, process, folder)


def directive(name: str) -> list[str]:
    """The values of a directive in the committed files, in order."""
    text = "\n".join(file.read_text() for file in sorted(CONFIGURATION.glob("*.conf")))
    return re.findall(rf"^\s*{name}\s+(.+);", text, re.MULTILINE)
