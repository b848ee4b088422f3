"""Checks that operators learn of an outage: `python -m tools.outage` takes about eight minutes.

Clients ask two real replicas behind the real nginx of `deploy/nginx`, whose responses mtail counts; Prometheus and
Alertmanager have the project's configuration. Then the replicas, mtail and nginx are stopped, one after the other. Two
tables show what the clients saw beside what the proxy counted, and the seconds until each alert was sent.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tools.monitoring import run_alertmanager, run_prometheus
from tools.mtail import Counting, counting
from tools.nginx import proxying
from tools.process import ROOT, Process, free_port, start, until, wait_until_ready

CHECKPOINT = ROOT / "models" / "cerberank_models" / "checkpoints" / "cerberank-mini"
QUESTION = {"question": "How tall is it?", "candidates": ["It is 330 metres tall."]}
CLIENTS = 16
BURNING = "CerberankErrorBudgetBurnsFast availability"


@dataclass(frozen=True)
class Pace:
    """The durations of the check; a test makes seconds of minutes."""

    rate: float = 50.0
    """Requests a second."""
    load_seconds: float = 60.0
    outage_seconds: float = 120.0
    page_seconds: float = 120.0
    """A page must be sent within this time; a ticket has three times as long."""
    interval: str = "15s"
    rules: Callable[[str], str] = lambda text: text
    routes: Callable[[str], str] = lambda text: text


@dataclass(frozen=True)
class Counts:
    """Requests that were answered, and that failed."""

    answered: int
    failed: int


@dataclass(frozen=True)
class Report:
    """The findings of the check."""

    counts: dict[str, tuple[Counts, Counts]]
    """By phase: what the clients saw, and what the proxy counted."""
    seconds: dict[str, float]
    """By alert, from the fault until Alertmanager sent it."""


@dataclass
class Load:
    """Clients that ask at a given rate, while the block lasts."""

    url: str
    rate: float
    statuses: Counter[int] = field(default_factory=Counter)

    def __enter__(self) -> Load:
        """Start the clients."""
        self._turns, self._lock, self._stopped = itertools.count(), threading.Lock(), threading.Event()
        self._begin = time.monotonic()
        self._threads = [threading.Thread(target=self._ask) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for the last answers."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    @property
    def counts(self) -> Counts:
        """The answers so far."""
        failed = sum(number for status, number in self.statuses.items() if status >= 500)
        return Counts(self.statuses.total() - failed, failed)

    def _ask(self) -> None:
        with httpx.Client(timeout=60.0) as client:
            while True:
                with self._lock:
                    turn = self._begin + next(self._turns) / self.rate
                if self._stopped.wait(max(0.0, turn - time.monotonic())):
                    return
                status = client.post(f"{self.url}/v1/rank", json=QUESTION).status_code
                with self._lock:
                    self.statuses[status] += 1


def check(folder: Path, checkpoint: Path, pace: Pace) -> Report:
    """Run all faults. Raises TimeoutError if an alert is not sent in time, and AssertionError if an alert is wrong."""
    with ExitStack() as stack:
        # The machines of one fleet, and those who watch it.
        ports = [free_port() for _ in range(2)]
        replicas = [_replica(stack, folder / f"log-{port}", checkpoint, port) for port in ports]
        mtail = stack.enter_context(counting())
        urls = [replica.url for replica in replicas]
        proxy = stack.enter_context(proxying(folder / "nginx", urls, mtail.changes))
        alertmanager = stack.enter_context(run_alertmanager(folder, pace.routes))
        prometheus = stack.enter_context(
            run_prometheus(
                urls,
                folder,
                interval=pace.interval,
                rules=pace.rules,
                proxy=proxy.counts,
                alertmanager=alertmanager.url,
            )
        )
        until(lambda: len(prometheus.query("cerberank_ready == 1")) == 2)
        report = Report({}, {})

        # Nothing is wrong.
        with Load(proxy.url, pace.rate) as load:
            time.sleep(pace.load_seconds)
        report.counts["all is well"] = _compared(load, mtail, Counts(0, 0))
        assert "pages" not in {each.receiver for each in alertmanager.sent}, alertmanager.sent

        # Both replicas are stopped. Alertmanager holds the page of the objective back, so Prometheus is asked for it.
        before = report.counts["all is well"][1]
        for replica in replicas:
            replica.terminate()
        for replica in replicas:
            replica.process.wait()
        since = time.monotonic()
        with Load(proxy.url, pace.rate) as load:
            alert = "CerberankNoReplicaReady"
            report.seconds[alert] = alertmanager.seconds_until("pages", alert, since, pace.page_seconds)
            until(lambda: BURNING in prometheus.firing(), seconds=pace.page_seconds)
            time.sleep(max(0.0, since + pace.outage_seconds - time.monotonic()))
        report.counts["both replicas stopped"] = _compared(load, mtail, before)
        for port in ports:
            _replica(stack, folder / f"again-{port}", checkpoint, port)
        until(lambda: "CerberankNoReplicaReady" not in prometheus.firing())

        # mtail is stopped, and nobody is woken, because nginx still runs. Then nginx is stopped too.
        for process, receiver, alert in (
            (mtail.process, "tickets", "CerberankProxyNotCounted"),
            (proxy.process, "pages", "CerberankProxyDown"),
        ):
            assert "CerberankProxyDown" not in prometheus.firing()
            process.terminate()
            process.wait()
            at_most = pace.page_seconds * (1 if receiver == "pages" else 3)
            report.seconds[alert] = alertmanager.seconds_until(receiver, alert, time.monotonic(), at_most)
        return report


def _replica(stack: ExitStack, log: Path, checkpoint: Path, port: int) -> Process:
    replica = start(checkpoint, log, CERBERANK_PORT=str(port), CERBERANK_THREADS="1")
    stack.callback(replica.process.wait)
    stack.callback(replica.process.kill)
    wait_until_ready(replica)
    return replica


def _compared(load: Load, mtail: Counting, before: Counts) -> tuple[Counts, Counts]:
    """The clients' counts, and those of the proxy since `before`, once mtail has read all lines or stopped."""

    def counted() -> Counts:
        return Counts(mtail.value("answered") - before.answered, mtail.value("failed") - before.failed)

    end = time.monotonic() + 5.0
    while counted() != load.counts and time.monotonic() < end:
        time.sleep(0.1)
    return load.counts, counted()


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=50.0, help="requests a second")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = check(Path(folder), CHECKPOINT, Pace(rate=arguments.rate))
    lines = ["| phase | clients: answered | failed | proxy: answered | failed |", "|---|---|---|---|---|"]
    lines += [
        f"| {phase} | {seen.answered} | {seen.failed} | {counted.answered} | {counted.failed} |"
        for phase, (seen, counted) in report.counts.items()
    ]
    lines += ["", "| alert | sent after |", "|---|---|"]
    lines += [f"| {alert} | {seconds:.0f} s |" for alert, seconds in report.seconds.items()]
    sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
