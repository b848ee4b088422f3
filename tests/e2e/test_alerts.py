"""Each alert fires in its fault and clears after it: a real service, a real Prometheus, minutes made seconds."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest
import yaml
from tests.e2e.conftest import Process, start, wait_until_ready
from tests.e2e.prometheus import FOLDER, WAIT_SECONDS, Prometheus, run_prometheus
from tests.service.fakes import RAISES
from tests.service.observe import wait_until
from tests.service.pushes import push, version_at

from cerberank_models.checkpoint.store.folder import FolderStore

pytestmark = pytest.mark.slow

SHORT = {"2m": "2s", "5m": "2s", "15m": "2s", "30m": "2s", "1h": "3s", "6h": "3s", "3d": "4s"}
"""Windows of the rules, in their order of length."""
ALERTS = {rule["alert"] for rule in yaml.safe_load((FOLDER / "rules" / "alerts.yml").read_text())["groups"][0]["rules"]}
DEAD = {"CerberankNoReplicaReady", "CerberankReplicaNotReady"}
SCRIPTED = {
    *("CerberankVersionDead", "CerberankOutOfMemory", "CerberankDeviceMemoryNearlyFull"),
    *("CerberankQueueStuck", "CerberankWantedVersionNotServed", "CerberankDiskFull", "CerberankKeysStale"),
    *("CerberankRestartsOften", "CerberankDescriptorsNearlyOut", "CerberankWithoutDescriptors"),
    "CerberankStoreNotFollowed",
}
"""Faults of a GPU or of a machine, which only scripted series test (`deploy/test_prometheus.py`)."""
BURN = {"CerberankErrorBudgetBurnsFast", "CerberankErrorBudgetBurnsSlowly"}
SMALL = {"question": "q", "candidates": ["a", "b"]}


def in_seconds(rules: str) -> str:
    """The rules with short windows."""
    rules = re.sub(r"(\[|offset )(\d+[mhd])\b", lambda found: found[1] + SHORT[found[2]], rules)
    return re.sub(r"for: \d+[mh]", "for: 500ms", rules)


@dataclass
class Watched:
    """A service that follows a store, and who watches it."""

    service: Process
    prometheus: Prometheus
    store: FolderStore
    folder: Path

    def ask(self, *bodies: dict[str, object]) -> None:
        """At once; what they are answered with is not looked at."""
        with ThreadPoolExecutor(len(bodies)) as pool:
            list(pool.map(lambda body: httpx.post(f"{self.service.url}/v1/rank", json=body, timeout=60.0), bodies))

    def wait_for(self, expected: set[str], *bodies: dict[str, object]) -> None:
        """Until these alerts fire (others may: a busy machine is slow, too), or none does; meanwhile, ask."""
        end = time.monotonic() + WAIT_SECONDS
        while not expected <= (firing := self.firing()) or (firing and not expected):
            assert time.monotonic() < end, f"{firing} fire instead of {expected}"
            self.ask(*(bodies or (SMALL,)))

    def firing(self) -> set[str]:
        """Names, and whose budget burns."""
        labels = [series["metric"] for series in self.prometheus.query('ALERTS{alertstate="firing"}')]
        return {" ".join(filter(None, (each["alertname"], each.get("slo")))) for each in labels}


def start_slow(folder: Path, port: str = "0") -> Process:
    """A model that takes 50 ms a step, by steps of 128 tokens: SMALL takes three steps."""
    service = start(
        folder,
        folder / "log",
        program=("-m", "tests.e2e.faulty", str(folder), "slow"),
        CERBERANK_STORE=str(folder / "store"),
        CERBERANK_STORE_POLL_SECONDS="0.1",
        TMPDIR=str(folder),
        CERBERANK_STEP_TOKENS="128",
        CERBERANK_PORT=port,
    )
    wait_until_ready(service)
    return service


def end(service: Process) -> None:
    service.process.kill()
    service.process.wait()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    store = FolderStore(folder / "store")
    push(store, version_at(folder / "made", "1"), "stable")
    service = start_slow(folder)
    try:
        with run_prometheus(service.url, folder, interval="250ms", rules=in_seconds) as prometheus:
            watched = Watched(service, prometheus, store, folder)
            try:
                yield watched
            finally:
                end(watched.service)
    finally:
        end(service)


@pytest.fixture
def watched(running: Watched) -> Iterator[Watched]:
    """All is well before the fault, and Prometheus knows it; and again after it."""
    wait_until(lambda: running.prometheus.query("cerberank_ready == 1"), seconds=WAIT_SECONDS, every=0.1)
    running.wait_for(set())
    yield running
    running.wait_for(set())


def burning(slo: str) -> set[str]:
    return {f"{name} {slo}" for name in BURN}


def test_failed_requests_burn_the_budget(watched: Watched) -> None:
    """One in two."""
    watched.wait_for(burning("availability"), SMALL, {**SMALL, "candidates": [RAISES, "b"]})


def test_slow_answers_burn_the_budget(watched: Watched) -> None:
    """Three quarters of a second each."""
    watched.wait_for(burning("latency"), {"question": "q", "candidates": [f"{number:050}" for number in range(12)]})


def test_a_long_queue_is_told(watched: Watched) -> None:
    """A question of a quarter of a minute, whose client then hangs up."""
    large = {"question": "q", "candidates": [f"{number:050}" for number in range(200)]}
    with closing(HTTPConnection(watched.service.url.removeprefix("http://"))) as client:
        client.request("POST", "/v1/rank", json.dumps(large))
        watched.wait_for({"CerberankQueueLong"})


def test_missed_deadlines_are_told(watched: Watched) -> None:
    """They pass within the second of three steps of 50 ms; on a busy machine within the first."""
    watched.wait_for({"CerberankDeadlinesMissed"}, {**SMALL, "deadline_ms": 80})


def test_a_rejected_version_is_told(watched: Watched) -> None:
    """It does not reproduce its golden scores."""
    push(watched.store, version_at(watched.folder / "made", "2", golden_shift=0.5), "canary")
    watched.wait_for({"CerberankVersionRejected"})
    watched.store.move_label("fake-ranker", "canary", None)


def test_a_store_that_is_away_is_told(watched: Watched) -> None:
    """Requests are answered meanwhile."""
    away = watched.folder / "away"
    (watched.folder / "store").rename(away)
    watched.wait_for({"CerberankStoreUnreachable"})
    away.rename(watched.folder / "store")


def test_a_dead_replica_is_told(watched: Watched) -> None:
    """It was the only one; another one starts in its place."""
    end(watched.service)
    wait_until(lambda: watched.firing() >= DEAD, seconds=WAIT_SECONDS, every=0.1)
    watched.service = start_slow(watched.folder, watched.service.url.rpartition(":")[2])


def test_no_alert_is_without_its_fault() -> None:
    """Every alert in the file has a fault that triggers it."""
    told = {"CerberankQueueLong", "CerberankDeadlinesMissed", "CerberankVersionRejected", "CerberankStoreUnreachable"}
    assert told | BURN | DEAD | SCRIPTED == ALERTS
