"""Ten minutes of faults in random order, at half of the capacity of two replicas: `python -m tools.chaos`.

Two replicas follow one store behind the proxy of `deploy/nginx`. The program prints a table of the faults and the
verdicts; `--report FILE` writes the whole report as JSON. The exit code is 1 if a verdict is negative.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from cerberank_benchmarks.clients.load import Load, percentile, steadily
from cerberank_benchmarks.machine import describe_machine
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.output import say
from tools.faults import FAULTS, Scene, obstacles, small_disks
from tools.fleet import Fleet, running
from tools.ledger import faults_of, in_turns, ledger, reference, some_bodies
from tools.nginx import program
from tools.process import until
from tools.versions import PushedVersions

REPLICAS = 2
BODIES = 8
REST_SECONDS = 3.0
"""Seconds between two faults."""
CLIENTS = 4
"""Number of clients that measure the capacity."""
MOST_GROWTH = 1.1
"""The largest allowed growth of a process's memory, see `growths`."""

WARM_PUSHES = 2
"""Number of pushed versions after which the memory of a process is stable."""


@dataclass(frozen=True, kw_only=True)
class Weight:
    """The memory of a process at one time."""

    replica: int
    pid: int
    pushes: int
    """Number of good versions pushed to all replicas until then."""
    megabytes: float


@dataclass(kw_only=True)
class Row:
    """One fault; `at` is in seconds from the run's beginning, `recovery` is None if the fleet did not recover."""

    fault: str
    at: float
    held: float = 0.0
    recovery: float | None = None
    requests: int = 0
    refused: int = 0
    p99_ms: float = 0.0
    slowest_ms: float = 0.0


@dataclass(kw_only=True)
class Chaos:
    """One run."""

    checkpoint: Path
    folder: Path
    seconds: float | None
    """Seconds during which faults happen; None for each fault once."""
    seed: int
    rate: float = 0.0
    """Questions per second; 0 for half of the measured capacity."""
    candidates: int = 20
    hold: float = 6.0
    settle: float = 20.0
    names: list[str] = field(default_factory=lambda: list(FAULTS))
    rows: list[Row] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)

    def run(self) -> dict[str, object]:
        """Run all faults; returns the report."""
        scene = Scene(PushedVersions(self.checkpoint, self.folder), random.Random(self.seed), self.hold)
        disks = small_disks(self.folder, self.checkpoint, REPLICAS)
        with disks, running(self.folder, self.folder / "store", count=REPLICAS, CERBERANK_THREADS="1") as fleet:
            bodies = some_bodies(BODIES, self.candidates, self.seed)
            scores = reference(fleet.replicas[0].url, bodies)
            capacity = 0.0 if self.rate else measure_capacity(fleet.proxy.url, bodies)
            load, rate = ledger(fleet.proxy.url), self.rate or capacity / 2
            with load.meanwhile(load.at_times(in_turns(bodies, self.seed), steadily(rate))):
                self.begin = time.monotonic()
                self._weigh(scene, fleet)
                self._settle(scene, fleet)
                self._inflict(scene, fleet)
                self._settle(scene, fleet)
            time.sleep(1.0)  # until the proxy has written its last log lines
            wrong = faults_of(load.answers, fleet.proxy.log, scene.versions.good, scores)
        self._count(load)
        statuses = Counter(answer.status for answer in load.answers)
        growth = growths(self.weights)
        return {
            "machine": describe_machine() | {"nginx": nginx_version()},
            "seed": self.seed,
            "seconds": self.seconds,
            "capacity_per_second": round(capacity, 1),
            "rate_per_second": round(rate, 1),
            "requests": len(load.answers),
            "statuses": statuses,
            "refused_percent": round(100.0 * statuses[503] / max(len(load.answers), 1), 2),
            "p99_ms": round(percentile(load.answers, 99), 1),
            "memory": [dataclasses.asdict(each) for each in self.weights],
            "growth": {name: round(each, 3) for name, each in growth.items()},
            "skipped": {name: reason for name, reason in obstacles().items() if reason},
            "faults": [dataclasses.asdict(row) for row in self.rows],
            "wrong": {name: ids[:10] for name, ids in wrong.items()},
            "verdicts": {
                **{f"no request: {name}": not ids for name, ids in wrong.items()},
                "every fault is recovered from": all(row.recovery is not None for row in self.rows),
                "memory of no process grows by more than 10 %": max(growth.values(), default=1.0) <= MOST_GROWTH,
            },
        }

    def _settle(self, scene: Scene, fleet: Fleet) -> None:
        """Push two good versions, and measure the replicas' memory afterwards, under load."""
        for _ in range(2):
            version = scene.versions.push()
            try:
                until(partial(fleet.serves, version))
            except TimeoutError:
                say(f"a good version does not arrive: {fleet.complaints()}")
                self.rows.append(Row(fault="good push, at rest", at=time.monotonic() - self.begin))
        time.sleep(self.settle)
        self._weigh(scene, fleet)

    def _weigh(self, scene: Scene, fleet: Fleet) -> None:
        """Record the memory of every replica that is ready."""
        for number, replica in enumerate(fleet.replicas):
            if replica.ready():
                weight = round(replica.megabytes(), 1)
                pushes = len(scene.versions.good)
                self.weights.append(Weight(replica=number, pid=replica.pid, pushes=pushes, megabytes=weight))

    def _plan(self, rng: random.Random) -> Iterator[str]:
        """All kinds of faults in random order, once, or repeatedly until the time is over."""
        names = [name for name in self.names if not obstacles()[name]]
        if self.seconds is None:
            yield from rng.sample(names, len(names))
            return
        while True:
            for name in rng.sample(names, len(names)):
                if time.monotonic() >= self.begin + self.seconds:
                    return
                yield name

    def _inflict(self, scene: Scene, fleet: Fleet) -> None:
        """Cause one fault after the other, and wait after each until the fleet has recovered."""
        self.begin = time.monotonic()
        for name in self._plan(scene.rng):
            row = Row(fault=name, at=time.monotonic() - self.begin)
            self.rows.append(row)
            try:
                recovered = FAULTS[row.fault](scene, fleet)
                row.held = time.monotonic() - self.begin - row.at
                row.recovery = until(recovered)
            except TimeoutError:
                say(f"{row.fault}: not recovered: {fleet.complaints()}")
            say(f"{row.at:6.1f} s  {row.fault:15} held {row.held:5.1f} s, recovered in {row.recovery or -1.0:.1f} s")
            time.sleep(REST_SECONDS)
            self._weigh(scene, fleet)

    def _count(self, load: Load) -> None:
        """Count the requests from each fault's beginning to the beginning of the next fault."""
        ends = [*(row.at for row in self.rows[1:]), float("inf")]
        for row, end in zip(self.rows, ends, strict=True):
            meanwhile = [each for each in load.answers if row.at <= each.due + load.begin - self.begin < end]
            row.requests = len(meanwhile)
            row.refused = sum(each.status == 503 for each in meanwhile)
            row.p99_ms = round(percentile(meanwhile, 99), 1)
            row.slowest_ms = round(max((each.milliseconds for each in meanwhile), default=0.0), 1)


def measure_capacity(url: str, bodies: list[dict[str, Any]], seconds: float = 8.0) -> float:
    """Answered questions per second of a few clients, each of which sends its next question without a pause."""
    load = Load(url, seconds=seconds)
    asyncio.run(load.in_loops([in_turns(bodies, seed=client) for client in range(CLIENTS)]))
    return sum(answer.status == 200 for answer in load.answers) / seconds


def nginx_version() -> str:
    """The version of nginx."""
    output = subprocess.run([program(), "-v"], capture_output=True, text=True, check=True).stderr
    return output.rpartition("/")[2].strip()


def table(rows: list[Row]) -> str:
    """The faults as a Markdown table."""
    lines = ["| at s | fault | held s | recovery s | requests | refused | p99 ms | slowest ms |", "|---" * 8 + "|"]
    for row in rows:
        recovery = "**never**" if row.recovery is None else f"{row.recovery:.1f}"
        lines.append(
            f"| {row.at:.0f} | {row.fault} | {row.held:.1f} | {recovery} | {row.requests} | {row.refused} "
            f"| {row.p99_ms:.0f} | {row.slowest_ms:.0f} |"
        )
    return "\n".join(lines)


def growths(weights: Sequence[Weight]) -> dict[str, float]:
    """Growth of each process's memory, by `replica/pid`: the last measurement divided by the first.

    Measurements count from the second push in the process's lifetime on; processes with fewer than two are left out.
    `weights` are in the order of their times.
    """
    growth = {}
    by_process = sorted(weights, key=lambda each: (each.replica, each.pid))  # stable: times stay in order
    for (replica, pid), group in groupby(by_process, key=lambda each: (each.replica, each.pid)):
        lifetime = list(group)
        warm = [each for each in lifetime if each.pushes >= lifetime[0].pushes + WARM_PUSHES]
        if len(warm) > 1:
            growth[f"{replica}/{pid}"] = warm[-1].megabytes / warm[0].megabytes
    return growth


def main(argv: list[str]) -> int:
    """Run the faults; returns 1 if a verdict is negative."""
    parser = argparse.ArgumentParser(prog="python -m tools.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--once", action="store_true", help="each fault once, however long that takes")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--rate", type=float, default=0.0, help="questions a second; 0: half of the capacity")
    parser.add_argument("--faults", nargs="*", choices=list(FAULTS), default=list(FAULTS))
    parser.add_argument("--report", type=Path)
    arguments = parser.parse_args(argv)
    say(f"seed {arguments.seed}; not possible here: { {n: r for n, r in obstacles().items() if r} or 'nothing' }")
    with tempfile.TemporaryDirectory() as folder:
        chaos = Chaos(
            checkpoint=default_checkpoint(),
            folder=Path(folder),
            seconds=None if arguments.once else arguments.seconds,
            seed=arguments.seed,
            rate=arguments.rate,
            names=arguments.faults,
        )
        report = chaos.run()
    # The parts that have a form of their own are printed apart from the others.
    if arguments.report:
        arguments.report.write_text(json.dumps(report, indent=2) + "\n")
    say(table(chaos.rows))
    shown = {name: value for name, value in report.items() if name not in {"faults", "memory", "verdicts"}}
    say(json.dumps(shown, indent=1))
    verdicts = report["verdicts"]
    assert isinstance(verdicts, dict)
    for name, verdict in verdicts.items():
        say(f"{'yes' if verdict else 'NO '}  {name}")
    return 0 if all(verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
