"""Pushes good and bad versions into a store while clients use a real service: `python -m tools.pushes`.

Prints failed requests, answers of versions that must not serve, the latency while a version is loaded and otherwise,
the memory after each new version, and the times of a push and of a rollback until the first answer.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx

from cerberank_benchmarks.clients.load import Load, percentile, request_of, steadily
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_service.commands.admin import Admin
from tools.ledger import some_bodies
from tools.process import ROOT, another_machine, serving, until
from tools.versions import PushedVersions, damage

TOKEN = "a-token-of-the-soak"
CONNECTIONS, PATIENCE_SECONDS = 16, 60.0
BAD = ("torn", "changed", "surplus", "golden", "killed")
POLL_SECONDS = 0.25
"""Seconds between two polls of the service. Polls are not more frequent because they are requests too."""
MOST_SECONDS = 120.0
"""Seconds within which the service must follow a push or a rollback."""
ROLLBACK_POLL_SECONDS = 0.05
"""Seconds between two polls while a rollback is timed."""
T = TypeVar("T")


@dataclass(kw_only=True, slots=True)
class Report:
    """The measurements; times are in seconds unless the name says otherwise."""

    requests: int = 0
    failed: int = 0
    foreign: int = 0
    """Number of answers from a version that was not ready, or with a wrong order."""
    swaps: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    unexplained: list[str] = field(default_factory=list)
    """Bad pushes that were rejected for another reason than the expected one."""
    p99_ms: float = 0.0
    p99_ms_while_pushed: float = 0.0
    push_to_answer: list[float] = field(default_factory=list)
    rollback: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)
    """Memory after each new version, when the version before the previous one is unloaded."""


@dataclass(kw_only=True)
class Soak:
    """One run."""

    checkpoint: Path
    folder: Path
    seconds: float
    every: float
    rate: float
    candidates: int = 20
    outage: float = 0.0
    """Seconds for which the store is missing, in the middle of the run."""
    yielding: bool = False
    """True if pushers only take processor time that the service and its clients leave, like pushers elsewhere."""
    report: Report = field(default_factory=Report)
    pushes: list[tuple[float, float]] = field(default_factory=list)

    def run(self) -> Report:
        """Start a service, send questions and push versions meanwhile; returns the report."""
        self.versions = PushedVersions(self.checkpoint, self.folder)
        self.rng = random.Random(0)
        settings = {
            "CERBERANK_STORE": str(self.folder / "store"),
            "CERBERANK_ADMIN_TOKEN": TOKEN,
            "CERBERANK_ADMIN_PORT": "0",
            "TMPDIR": str(self.folder),
        }
        with (
            serving(Path(), self.folder / "log", **settings) as self.service,
            httpx.Client(base_url=self.service.url, timeout=60) as self.client,
            another_machine(yielding=self.yielding) as self.elsewhere,
        ):
            # One question, whose answer is known before anything is pushed.
            (self.body,) = some_bodies(1, self.candidates, seed=0)
            expected = self.client.post("/v1/rank", json=self.body).json()
            # Clients ask it while versions are pushed and rolled back.
            self.load = Load(self.service.url, connections=CONNECTIONS, patience=PATIENCE_SECONDS)
            questions = itertools.repeat(request_of(self.body))
            with self.load.meanwhile(self.load.at_times(questions, steadily(self.rate))):
                self._push_for_a_while()
                self._roll_back()
        self._count([result["index"] for result in expected["results"]])
        return self.report

    def _push_for_a_while(self) -> None:
        kinds = itertools.chain.from_iterable(("good", bad) for bad in itertools.cycle(BAD))
        begin = time.monotonic()
        away_at = begin + self.seconds / 2 if self.outage else float("inf")
        for number, kind in enumerate(kinds):
            due = begin + number * self.every
            if due > begin + self.seconds:
                return
            if due > away_at:
                away_at = float("inf")
                self._store_goes_away()
            time.sleep(max(0.0, due - time.monotonic()))
            started = self.load.now
            if kind == "good":
                self._push_good()
            elif kind == "killed":
                self._kill_a_push()
            else:
                self._push_bad(kind)
            self.pushes.append((started, self.load.now))

    def _push_good(self) -> None:
        """Push with the program, as users do; wait for the version's first answer and for an older one's unloading."""
        version, source = self._there(self.versions.make)
        started = time.monotonic()
        pusher = self._pusher(source)
        self._there(lambda: subprocess.run(pusher, check=True, stdout=subprocess.DEVNULL, cwd=ROOT))
        self.versions.accept(version)
        answers = self.load.answers
        self._until(lambda: any(answer.version == version for answer in answers[-50:]))
        self.report.push_to_answer.append(time.monotonic() - started)
        self.report.swaps += 1
        self._until(lambda: len([e for e in self._entries().values() if e["state"] in {"ready", "unloading"}]) <= 2)
        self.report.megabytes.append(self.service.megabytes)
        shutil.rmtree(source)
        self.versions.delete_old()

    def _kill_a_push(self) -> None:
        """Kill the program while it pushes; every version that is in the store then must be complete."""
        version, source = self._there(self.versions.make)
        command = self._pusher(source)
        pusher = self._there(lambda: subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT))
        time.sleep(self.rng.random())
        pusher.send_signal(signal.SIGKILL)
        pusher.wait()
        store, model = self.versions.store, self.versions.model
        for complete in store.versions(model):
            self._there(partial(read_checkpoint, self.versions.path(complete)))
        if store.labels(model)["stable"] == version:  # the pusher had finished before it was killed
            self.versions.accept(version)
        self._rejected("killed")
        shutil.rmtree(source)

    def _push_bad(self, kind: str) -> None:
        """Push a version that must not serve; move the label back after the service has rejected it."""
        version = self._there(partial(self.versions.push_bad, partial(damage, kind)))
        self._until(lambda: self._entries().get(version, {}).get("state") == "failed")
        reason = str(self._entries()[version]["reason"])
        if not reason.startswith(f"{kind}:"):
            self.report.unexplained.append(f"{kind}: {reason}")
        self.versions.take_back(version)
        self._rejected(kind)

    def _rejected(self, kind: str) -> None:
        self.report.rejected[kind] = self.report.rejected.get(kind, 0) + 1

    def _roll_back(self) -> None:
        """Roll back three times, each time until an answer has the new version."""
        if self.service.admin_url is None or self.report.swaps < 1:
            return
        admin = Admin(self.service.admin_url, TOKEN)
        for _ in range(3):
            self._until(self._can_be_rolled_back)
            started = time.monotonic()
            moved = admin.ask("POST", "models", self.versions.model, "rollback")
            self._until(partial(self._answers, moved["version"]), every=ROLLBACK_POLL_SECONDS)
            self.report.rollback.append(time.monotonic() - started)
            # A second rollback in a row would be refused.
            self.versions.store.move_label(self.versions.model, "stable", moved["before"])

    def _answers(self, version: str) -> bool:
        return bool(self.client.post("/v1/rank", json=self.body).json()["version"] == version)

    def _can_be_rolled_back(self) -> bool:
        """True if the stable version serves and a rollback version is loaded.

        After a pusher was killed late, the label may name a version that is still being loaded.
        """
        entries, stable = self._entries(), self.versions.store.labels(self.versions.model)["stable"]
        serves = "stable" in entries.get(stable, {}).get("labels", [])
        return serves and any(entry.get("rollback") for entry in entries.values())

    def _store_goes_away(self) -> None:
        store = self.folder / "store"
        store.rename(self.folder / "away")
        time.sleep(self.outage)
        (self.folder / "away").rename(store)

    def _there(self, work: Callable[[], T]) -> T:
        return self.elsewhere.submit(work).result()

    def _pusher(self, source: Path) -> list[str]:
        return [
            sys.executable,
            "-m",
            "cerberank",
            "store",
            "push",
            str(source),
            str(self.folder / "store"),
            "--label",
            "stable",
        ]

    def _entries(self) -> dict[str, dict[str, Any]]:
        models = self.client.get("/v1/models").json()["models"]
        return {entry["version"]: entry for entry in models if "version" in entry}

    def _until(self, condition: Callable[[], object], *, every: float = POLL_SECONDS) -> None:
        try:
            until(condition, seconds=MOST_SECONDS, every=every)
        except TimeoutError as error:
            raise TimeoutError(f"{error}:\n{self.service.log.read_text()[-4000:]}") from error

    def _count(self, expected: list[int]) -> None:
        answers, report = self.load.answers, self.report
        report.requests = len(answers)
        report.failed = sum(answer.status != 200 for answer in answers)
        served = [answer for answer in answers if answer.status == 200]
        report.foreign = sum(a.version not in self.versions.good or list(a.order) != expected for a in served)
        pushed = [a for a in served if any(begin <= a.ended and a.due <= end for begin, end in self.pushes)]
        others = [a for a in served if not any(begin <= a.ended and a.due <= end for begin, end in self.pushes)]
        report.p99_ms = percentile(others, 99)
        report.p99_ms_while_pushed = percentile(pushed, 99)


def verdicts(report: Report) -> dict[str, bool]:
    """The promises, each with True if the report keeps it."""
    memory = report.megabytes
    return {
        "no failed request": report.failed == 0,
        "no answer of a version that was not ready": report.foreign == 0,
        "every bad push rejected for its own reason": not report.unexplained,
        "p99 while pushed at most 1.25 times": report.p99_ms_while_pushed <= 1.25 * report.p99_ms,
        "memory after the last swap within 5 % of that after the fifth": len(memory) > 5
        and memory[-1] <= 1.05 * memory[4],
        "push to first answer at most 15 s": max(report.push_to_answer, default=99.0) <= 15.0,
        "rollback at most 1 s": max(report.rollback, default=99.0) <= 1.0,
    }


def main(argv: list[str]) -> int:
    """Run the soak; returns 1 if a promise is not kept."""
    parser = argparse.ArgumentParser(prog="python -m tools.pushes", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds from push to push")
    parser.add_argument("--rate", type=float, default=5.0, help="questions a second")
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--outage", type=float, default=60.0, help="seconds without the store, in the middle")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        report = Soak(checkpoint=default_checkpoint(), folder=Path(folder), yielding=True, **vars(arguments)).run()
    sys.stdout.write(json.dumps(dataclasses.asdict(report), indent=2) + "\n")
    promises = verdicts(report)
    for name, fulfilled in promises.items():
        sys.stdout.write(f"{'yes' if fulfilled else 'NO '}  {name}\n")
    return 0 if all(promises.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
