"""A service under hostile requests, and a neighbour who only wants answers: `python -m tests.e2e.siege`.

`--candidates` is the size of the neighbour's question, `--rounds` how often every attack comes: a p99 wants hundreds
of answers.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
from tests.e2e.conftest import ROOT, Process, start, wait_until_ready
from tests.e2e.hostile import attacks, statuses
from tests.soak.elsewhere import another_machine

from cerberank_models.checkpoint.bundled import default_checkpoint

SETTINGS = {"CERBERANK_KEEP_ALIVE_SECONDS": "2", "CERBERANK_LOG_LEVEL": "debug"}
IMPATIENT = ("-m", "tests.e2e.impatient")
MARK = "a mark"
"""A text of the neighbour's: it must stand in no log."""


def ask(candidates: int) -> dict[str, object]:
    """The neighbour's question: so many different sentences, one of them the mark."""
    texts = [f"the tower of number {n} was built in paris and is {n} metres tall" for n in range(1, candidates)]
    return {"question": "how tall is the tower ?", "candidates": [MARK, *texts]}


@dataclass
class Neighbour:
    """Asks again and again until it is told to stop."""

    url: str
    body: dict[str, object] = field(default_factory=lambda: ask(4))
    seconds: list[float] = field(default_factory=list)
    statuses: set[int] = field(default_factory=set)
    pause: float = 0.01

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Asks while the block lasts."""
        done = threading.Event()
        thread = threading.Thread(target=self._run, args=(done,))
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def p99(self) -> float:
        """The 99th percentile of its answers' times, in milliseconds."""
        return float(np.percentile(self.seconds, 99)) * 1000.0

    def _run(self, done: threading.Event) -> None:
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while not done.is_set():
                started = time.monotonic()
                self.statuses.add(client.post("/v1/rank", json=self.body).status_code)
                self.seconds.append(time.monotonic() - started)
                time.sleep(self.pause)


def resident(service: Process) -> float:
    """Megabytes of memory that the process and its children hold, in nameless files too."""
    pids = [str(service.process.pid)]
    files: dict[int, float] = {}
    for task in Path(f"/proc/{service.process.pid}/task").glob("*/children"):
        pids += task.read_text().split()
    found = [re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text()) for pid in pids]
    for pid in pids:  # bodies on their way to the process that reads them: no process's own memory
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                if str(entry.readlink()).startswith("/memfd:"):
                    status = entry.stat()
                    files[status.st_ino] = status.st_blocks / 2
    return (sum(int(each[1]) for each in found if each is not None) + sum(files.values())) / 1024.0


def warm_up(client: httpx.Client) -> None:
    """Let the process that reads large bodies be there before memory is measured."""
    client.post("/v1/rank", content=b" " * 2**21 + json.dumps(ask(4)).encode()).raise_for_status()


def besiege(service: Process) -> Iterator[tuple[str, set[int], set[int], float]]:
    """Every attack after the other: its name, what came back, what may, and the memory after it."""
    for attack in attacks():
        yield attack.name, set(statuses(service.url, attack)), attack.statuses, resident(service)


def main() -> None:
    """Besiege a service of the bundled checkpoint and print what it cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        service = start(default_checkpoint(), Path(folder) / "log", program=IMPATIENT, **SETTINGS)
        try:
            wait_until_ready(service)
            with httpx.Client(base_url=service.url, timeout=60) as client:
                warm_up(client)
            alone, besieged = (Neighbour(service.url, ask(arguments.candidates)) for _ in range(2))
            before = None
            for _ in range(arguments.rounds):  # in turns, for the machine has moods
                with alone.asking():
                    time.sleep(20.0)
                before = before or resident(service)
                _besiege_from_elsewhere(service, besieged)
            _say(f"memory before and after: {before or 0.0:.1f} MB, {resident(service):.1f} MB")
            _say(f"neighbour's answers before and meanwhile: {len(alone.seconds)}, {len(besieged.seconds)}")
            _say(f"neighbour's p99 before and meanwhile: {alone.p99():.1f} ms, {besieged.p99():.1f} ms")
            _say(f"neighbour's statuses: {sorted(alone.statuses | besieged.statuses)}")
        finally:
            service.process.kill()
            service.process.wait()


def _besiege_from_elsewhere(service: Process, neighbour: Neighbour) -> None:
    """By a process of its own that takes only the time that the others leave: attackers have their own machines."""
    command = [sys.executable, "-m", "tests.e2e.hostile", service.url]
    with another_machine(yielding=True) as elsewhere:
        attackers = elsewhere.submit(
            lambda: subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        ).result()
    assert attackers.stdin is not None
    assert attackers.stdout is not None
    attackers.stdout.readline()  # what it imports and makes is no attack
    try:
        with neighbour.asking():
            attackers.stdin.write("begin\n")
            attackers.stdin.flush()
            seen = len(neighbour.seconds)
            for line in attackers.stdout:
                name, came = json.loads(line)
                slowest = 1000.0 * max(neighbour.seconds[seen:], default=0.0)
                seen = len(neighbour.seconds)
                _say(f"{name:28} {sorted(set(came))!s:16} {resident(service):.0f} MB, slowest answer {slowest:.0f} ms")
    except BaseException:
        attackers.kill()
        raise
    if attackers.wait() != 0:
        raise RuntimeError("the attackers failed")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
