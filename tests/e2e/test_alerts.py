"""Each alert fires in its fault and clears after it: a real service, a real Prometheus, minutes made seconds."""

from __future__ import annotations

import os
import re
import resource
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from tests.calibrations import calibrated
from tests.service.fakes import RAISES
from tests.service.observe import wait_until
from tests.service.pushes import push, version_at
from tools.monitoring import WAIT_SECONDS, Prometheus, run_prometheus
from tools.outage import Pace, check
from tools.process import Process, start, wait_until_ready

from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_service.access.key_file import add_key

SHORT = {"2m": "2s", "5m": "2s", "10m": "2s", "15m": "2s", "30m": "2s", "1h": "3s", "6h": "3s", "3d": "4s"}
"""Windows of the rules, in their order of length; a day stays one."""
DEAD = {"CerberankNoReplicaReady", "CerberankReplicaNotReady", "CerberankReplicasMissing"}
PROXY = {"CerberankProxyDown", "CerberankProxyNotCounted"}
BURN = {"CerberankErrorBudgetBurnsFast", "CerberankErrorBudgetBurnsSlowly"}
SMALL = {"question": "q", "candidates": ["a", "b"]}


def in_seconds(rules: str) -> str:
    """The rules with short windows, with two seconds in the place of those that a hang must last, and few questions."""
    rules = re.sub(r"> 500\b", "> 2", rules)
    rules = re.sub(r">= 10\b", ">= 1", rules)
    rules = rules.replace('le="2.5"', 'le="0.5"')
    rules = re.sub(r"((?:stalled|poll_age)_seconds\{.*\}) > \d+", r"\1 > 2", rules)
    rules = re.sub(r"(\[|offset )(\d+[mhd])\b", lambda match: match[1] + SHORT.get(match[2], match[2]), rules)
    return at_once(rules)


def at_once(rules: str) -> str:
    """The rules without the time for which a state must last."""
    rules = rules.replace("expr: vector(2)", "expr: vector(1)")  # replicas
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

    def wait_until_told(self, expected: set[str]) -> None:
        """Until these alerts fire, without asking."""
        wait_until(lambda: expected <= self.firing(), seconds=WAIT_SECONDS, every=0.1)

    @contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """One of `tests.e2e.faulty`, for a while."""
        (self.folder / name).touch()
        try:
            yield
        finally:
            (self.folder / name).unlink(missing_ok=True)

    def firing(self) -> set[str]:
        """Names, and whose budget burns."""
        return self.prometheus.firing()


def start_slow(folder: Path, port: str = "0", **settings: str) -> Process:
    """A model that takes 50 ms a step, by steps of 128 tokens: SMALL takes three steps, and waits a second at most."""
    settings = {
        "CERBERANK_STORE": str(folder / "store"),
        "CERBERANK_STORE_POLL_SECONDS": "0.1",
        "TMPDIR": str(folder),
        "CERBERANK_STEP_TOKENS": "128",
        "CERBERANK_QUEUE_SECONDS": "1",
        "CERBERANK_PORT": port,
    } | settings
    program = ("-m", "tests.e2e.faulty", str(folder))
    service = start(folder, folder / "log", program=program, **settings)
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
        with run_prometheus([service.url], folder, interval="250ms", rules=in_seconds) as prometheus:
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


FAILING = {**SMALL, "candidates": [RAISES, "b"]}
SLOW = {"question": "q", "candidates": [f"{number:050}" for number in range(12)]}
"""Its answer takes three quarters of a second."""
MANY = [{**SMALL, "candidates": ["a" * 25, "b" * 25]}] * 64
LATE = {**SMALL, "deadline_ms": 80}
"""Its deadline passes within the second of three steps of 50 ms; on a busy machine within the first."""


@pytest.mark.parametrize(
    ("alerts", "bodies", "file"),
    [
        (burning("availability"), [SMALL, FAILING], ""),
        (burning("latency"), [SLOW], ""),
        ({"CerberankQuestionsRefused"}, MANY, ""),
        ({"CerberankDeadlinesMissed"}, [LATE], ""),
        ({"CerberankStoreUnreachable"}, [SMALL], "unread"),
        ({"CerberankOutOfMemory"}, [FAILING], "memory"),
    ],
    ids=["failed requests", "slow answers", "refusals", "missed deadlines", "a store that hangs", "memory"],
)
def test_a_fault_is_told(watched: Watched, alerts: set[str], bodies: list[dict[str, object]], file: str) -> None:
    """While requests come in; some faults are those that a file causes."""
    with watched.fault(file) if file else nullcontext():
        watched.wait_for(alerts, *bodies)


def test_a_call_that_hangs_is_told(watched: Watched) -> None:
    """While it does."""
    with watched.fault("hang"), ThreadPoolExecutor(1) as pool:
        question = pool.submit(watched.ask, SMALL)
        watched.wait_until_told({"CerberankQueueStuck"})
        (watched.folder / "hang").unlink()
        question.result()


def test_a_rejected_version_is_told(watched: Watched) -> None:
    """It does not reproduce its golden scores; and its label means another version than the one that serves."""
    push(watched.store, version_at(watched.folder / "made", "2", golden_shift=0.5), "canary")
    watched.wait_for({"CerberankVersionRejected", "CerberankWantedVersionNotServed"})
    watched.store.move_label("fake-ranker", "canary", None)


def test_a_canary_that_fails_is_told(watched: Watched) -> None:
    """It raises an error on its questions, and serves the others."""
    push(watched.store, version_at(watched.folder / "made", "5"), "canary")
    canary = {**SMALL, "model": "fake-ranker@canary"}
    watched.wait_for({"CerberankCanaryOrShadowFails"}, {**canary, "candidates": [RAISES, "b"]}, canary)
    watched.store.move_label("fake-ranker", "canary", None)


def test_scores_unlike_those_of_the_calibration_questions_are_told(watched: Watched) -> None:
    """Nearly 0, where these had .6 in the mean."""
    made = version_at(watched.folder / "made", "3").path
    drifted = calibrated(made, watched.folder / "made" / "drifted", version="4", constant=-9.0)
    push(watched.store, drifted, "canary")
    watched.wait_for({"CerberankCalibrationDrift"}, {**SMALL, "model": "fake-ranker@canary"})
    watched.store.move_label("fake-ranker", "canary", None)


def test_a_store_that_is_away_is_told(watched: Watched) -> None:
    """Requests are answered meanwhile."""
    away = watched.folder / "away"
    (watched.folder / "store").rename(away)
    watched.wait_for({"CerberankStoreUnreachable"})
    away.rename(watched.folder / "store")


def test_a_shortage_of_descriptors_is_told(watched: Watched) -> None:
    """Idle connections take them."""
    pid, address = watched.service.process.pid, urlsplit(watched.service.url)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = descriptors(pid)
    with ExitStack() as idle:
        for _ in range(100):
            idle.enter_context(socket.create_connection((address.hostname, address.port)))
        wait_until(lambda: descriptors(pid) > used + 95)  # a few that were used for a moment may be free again
        idle.callback(resource.prlimit, pid, resource.RLIMIT_NOFILE, before)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 105, before[1]))
        watched.wait_until_told({"CerberankDescriptorsNearlyOut"})


def descriptors(pid: int) -> int:
    """The number that the process uses."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_an_engine_that_ended_and_a_dead_replica_are_told(watched: Watched) -> None:
    """It was the only one; another one starts in its place."""
    with watched.fault("exit"):
        watched.ask({**SMALL, "candidates": [RAISES]})
        watched.wait_until_told({"CerberankVersionDead", *DEAD})
    end(watched.service)
    watched.wait_until_told(DEAD)
    watched.service = start_slow(watched.folder, watched.service.url.rpartition(":")[2])


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting needs root")
def test_a_machine_s_faults_are_told(tmp_path: Path) -> None:
    """A key file that cannot be read, a disk without room for a copy, and a process that starts again and again."""
    place, keys = tmp_path / "copies", tmp_path / "keys"
    place.mkdir()
    add_key(keys, "client")
    store = FolderStore(tmp_path / "store")
    push(store, version_at(tmp_path / "made", "1"), "stable")
    settings = {"TMPDIR": str(place), "CERBERANK_KEYS_FILE": str(keys)}
    with ExitStack() as stack:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(place)], check=True)
        stack.callback(subprocess.run, ["umount", "--lazy", str(place)], check=True)
        service = start_slow(tmp_path, **settings)
        stack.callback(lambda: end(service))
        prometheus = stack.enter_context(run_prometheus([service.url], tmp_path, interval="250ms", rules=at_once))
        watched = Watched(service, prometheus, store, tmp_path)
        keys.unlink()
        push(store, version_at(tmp_path / "made", "2", graph_bytes=200_000), "canary")
        watched.wait_for({"CerberankKeysStale", "CerberankDiskFull"})
        for _ in range(3):
            wait_until(lambda: prometheus.query("up == 1"), seconds=WAIT_SECONDS, every=0.1)
            end(service)
            add_key(keys, "client")
            service = start_slow(tmp_path, service.url.rpartition(":")[2], **settings)
            keys.unlink()
        watched.wait_until_told({"CerberankRestartsOften"})


def test_an_outage_is_counted_and_told(tmp_path: Path, tiny_checkpoint: Path) -> None:
    """Behind the proxy: the replicas, mtail and nginx end; Alertmanager sends pages and a ticket.

    `python -m tools.outage` does the same with the windows and the intervals of the configuration.
    """

    def soon(routes: str) -> str:
        return re.sub(r"(group_\w+): \d+[sm]", r"\1: 100ms", routes)

    pace = Pace(
        load_seconds=4.0, outage_seconds=4.0, page_seconds=WAIT_SECONDS, interval="250ms", rules=in_seconds, routes=soon
    )
    findings = check(tmp_path, tiny_checkpoint, pace)
    for seen, counted in findings.counts.values():
        assert counted == seen
    assert findings.counts["all is well"][0].failed == 0
    assert findings.counts["both replicas stopped"][0].answered == 0
    assert PROXY | {"CerberankNoReplicaReady"} == set(findings.seconds)
