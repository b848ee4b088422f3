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
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from cerberank_benchmarks.clients.load import Load, request_of, steadily
from cerberank_benchmarks.clients.server import free_port
from tools.monitoring import run_alertmanager, run_prometheus
from tools.mtail import Counting, counting
from tools.nginx import proxying
from tools.process import ROOT, Process, serving, until

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
class Findings:
    """The findings of the check."""

    counts: dict[str, tuple[Counts, Counts]]
    """By phase: what the clients saw, and what the proxy counted."""
    seconds: dict[str, float]
    """By alert, from the fault until Alertmanager sent it."""


@contextmanager
def asking(url: str, rate: float) -> Iterator[Load]:
    """Clients that ask at this rate during the block."""
    load = Load(url, connections=CLIENTS, patience=60.0)
    with load.meanwhile(load.at_times(itertools.repeat(request_of(QUESTION)), steadily(rate))):
        yield load


def check(folder: Path, checkpoint: Path, pace: Pace) -> Findings:
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
        findings = Findings({}, {})

        # Nothing is wrong.
        with asking(proxy.url, pace.rate) as load:
            time.sleep(pace.load_seconds)
        findings.counts["all is well"] = _compared(load, mtail, Counts(0, 0))
        assert "pages" not in {each.receiver for each in alertmanager.sent}, alertmanager.sent

        # Both replicas are stopped. Alertmanager holds the page of the objective back, so Prometheus is asked for it.
        before = findings.counts["all is well"][1]
        since = time.monotonic()  # the page may come while a replica still drains
        for replica in replicas:
            replica.terminate()
        for replica in replicas:
            replica.process.wait()
        with asking(proxy.url, pace.rate) as load:
            alert = "CerberankNoReplicaReady"
            findings.seconds[alert] = alertmanager.seconds_until("pages", alert, since, pace.page_seconds)
            until(lambda: BURNING in prometheus.firing(), seconds=pace.page_seconds)
            time.sleep(max(0.0, since + pace.outage_seconds - time.monotonic()))
        findings.counts["both replicas stopped"] = _compared(load, mtail, before)
        for port in ports:
            _replica(stack, folder / f"again-{port}", checkpoint, port)
        until(lambda: "CerberankNoReplicaReady" not in prometheus.firing())

        # mtail is stopped, and nobody is woken, because nginx still runs. Then nginx is stopped too.
        for process, receiver, alert in (
            (mtail.process, "tickets", "CerberankProxyNotCounted"),
            (proxy.process, "pages", "CerberankProxyDown"),
        ):
            assert "CerberankProxyDown" not in prometheus.firing()
            since = time.monotonic()
            process.terminate()
            process.wait()
            at_most = pace.page_seconds * (1 if receiver == "pages" else 3)
            findings.seconds[alert] = alertmanager.seconds_until(receiver, alert, since, at_most)
        return findings


def _replica(stack: ExitStack, log: Path, checkpoint: Path, port: int) -> Process:
    return stack.enter_context(serving(checkpoint, log, CERBERANK_PORT=str(port), CERBERANK_THREADS="1"))


def _compared(load: Load, mtail: Counting, before: Counts) -> tuple[Counts, Counts]:
    """The clients' counts, and those of the proxy since `before`, once mtail has read all lines or stopped."""
    answered = sum(answer.status == httpx.codes.OK for answer in load.answers)
    seen = Counts(answered, len(load.answers) - answered)

    def counted() -> Counts:
        return Counts(mtail.value("answered") - before.answered, mtail.value("failed") - before.failed)

    end = time.monotonic() + 5.0
    while counted() != seen and time.monotonic() < end:
        time.sleep(0.1)
    return seen, counted()


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=50.0, help="requests a second")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        findings = check(Path(folder), CHECKPOINT, Pace(rate=arguments.rate))
    lines = ["| phase | clients: answered | failed | proxy: answered | failed |", "|---|---|---|---|---|"]
    lines += [
        f"| {phase} | {seen.answered} | {seen.failed} | {counted.answered} | {counted.failed} |"
        for phase, (seen, counted) in findings.counts.items()
    ]
    lines += ["", "| alert | sent after |", "|---|---|"]
    lines += [f"| {alert} | {seconds:.0f} s |" for alert, seconds in findings.seconds.items()]
    sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
