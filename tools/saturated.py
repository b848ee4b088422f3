"""Pushes versions into a saturated service: `python -m tools.saturated`.

As in a container, where a thread that has stepped back may not step forward again:
`setpriv --bounding-set -sys_nice python -m tools.saturated`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx

from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.store.folder import FolderStore
from tools.process import start, wait_until_ready
from tools.siege import ask
from tools.versions import versions_of

REST_SECONDS = 6.0
LONGEST_SECONDS = 300.0


@dataclass(frozen=True)
class Answer:
    """The outcome of one request of a client."""

    at: float
    seconds: float
    status: int
    version: str | None


@dataclass
class Clients:
    """Closed-loop clients, which send the next request as soon as they are answered."""

    url: str
    count: int
    body: dict[str, object]
    answers: list[Answer] = field(default_factory=list)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Run the clients while the block lasts."""
        done = threading.Event()
        threads = [threading.Thread(target=self._ask, args=(done,)) for _ in range(self.count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            done.set()
            for thread in threads:
                thread.join()

    def _ask(self, done: threading.Event) -> None:
        with httpx.Client(base_url=self.url, timeout=LONGEST_SECONDS) as client:
            while not done.is_set():
                began = time.monotonic()
                answer = client.post("/v1/rank", json=self.body)
                now = time.monotonic()
                version = answer.json().get("version")
                self.answers.append(Answer(now, now - began, answer.status_code, version))


def main() -> None:
    """Print how long every push took, and the clients' latencies meanwhile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--pushes", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        store, bundled = FolderStore(folder / "store"), default_checkpoint()
        versions = versions_of(bundled, folder, [str(number) for number in range(arguments.pushes + 1)])
        pushed = [read_checkpoint(path) for path in versions.values()]
        _push(store, pushed[0])
        settings = {"CERBERANK_STORE": str(folder / "store"), "TMPDIR": str(folder)}
        service = start(Path(), folder / "log", **settings)
        try:
            wait_until_ready(service)
            clients = Clients(service.url, arguments.clients, ask(arguments.candidates))
            with clients.asking():
                for checkpoint in pushed[1:]:
                    seen = len(clients.answers)
                    while len(clients.answers) == seen:
                        time.sleep(REST_SECONDS)
                    _time_push(store, checkpoint, clients)
        finally:
            service.process.kill()
            service.process.wait()


def _push(store: FolderStore, checkpoint: Checkpoint) -> None:
    store.push(checkpoint)
    store.move_label(checkpoint.config.name, "stable", checkpoint.manifest.version)


def _time_push(store: FolderStore, checkpoint: Checkpoint, clients: Clients) -> None:
    _push(store, checkpoint)
    began, version = time.monotonic(), checkpoint.manifest.version
    while not any(answer.version == version for answer in clients.answers[-50:]):
        if time.monotonic() > began + LONGEST_SECONDS:
            raise TimeoutError(f"{version} does not answer")
        time.sleep(0.05)
    taken = time.monotonic() - began
    before = [answer.seconds for answer in clients.answers if answer.at < began]
    meanwhile = [answer.seconds for answer in clients.answers if answer.at >= began]
    sys.stdout.write(
        f"from the push to an answer {taken:.1f} s; an answer took {median(before):.2f} s before and "
        f"{median(meanwhile):.2f} s meanwhile; statuses {sorted({answer.status for answer in clients.answers})}\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
