"""A real Prometheus scrapes the real process: every series that dashboard and alerts ask for is there."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.e2e.conftest import Process
from tests.service.observe import wait_until

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "cerberank.json").read_text())
QUERIES = {
    f"{panel['title']}: {target['legendFormat']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", [])
}
WAIT_SECONDS = 60.0


@dataclass
class Prometheus:
    """A running Prometheus."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The instant vector of an expression."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}).raise_for_status().json()
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def alert_state(self, name: str) -> set[str]:
        return {series["metric"]["alertstate"] for series in self.query(f'ALERTS{{alertname="{name}"}}')}


@pytest.fixture
def prometheus(service: Process, tmp_path: Path) -> Iterator[Prometheus]:
    """With the project's configuration, but every second and for this test's service."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs Debian's prometheus")
    folder = Path(shutil.copytree(DEPLOY / "prometheus", tmp_path / "prometheus"))
    config = yaml.safe_load((folder / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [service.url.removeprefix("http://")]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    with (tmp_path / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([program, *options, f"--web.listen-address={address}"], stdout=log, stderr=log)
    try:
        wait_until(lambda: _ready(f"http://{address}"), seconds=WAIT_SECONDS)
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        process.wait(timeout=30)


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready").status_code == 200
    except httpx.TransportError:
        return False


def ask(service: Process) -> None:
    """One whole answer, one whose deadline passes, one that drops."""
    candidates = ["it was built in paris", "330 metres", "bees make honey", "it was built in paris"]
    body = {"question": "how tall is the tower ?", "candidates": candidates}
    for options in ({}, {"deadline_ms": 0.001}, {"drop_ratio": 0.5}):
        httpx.post(f"{service.url}/v1/rank", json=body | options).raise_for_status()


def test_every_query_of_the_dashboard_has_an_answer(service: Process, prometheus: Prometheus) -> None:
    """A number, not an empty graph and no NaN, while requests come in; the rules are evaluated without an error."""
    end = time.monotonic() + WAIT_SECONDS
    missing = set(QUERIES)
    while missing and time.monotonic() < end:
        ask(service)
        missing = {name for name in missing if not _numbers(prometheus, QUERIES[name])}
        time.sleep(0.5)
    assert missing == set()
    groups = httpx.get(f"{prometheus.url}/api/v1/rules").json()["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > 15
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}  # unknown: not its turn yet


def _numbers(prometheus: Prometheus, expression: str) -> bool:
    concrete = expression.replace("$job", "cerberank").replace("$__rate_interval", "30s")
    values = [series["value"][1] for series in prometheus.query(concrete)]
    return bool(values) and "NaN" not in values and "+Inf" not in values


def test_the_series_of_the_rules_exist_before_any_request(prometheus: Prometheus) -> None:
    """An alert that waits for a series to appear misses the first fault."""
    wait_until(lambda: prometheus.query("cerberank_ready == 1"), seconds=WAIT_SECONDS)
    needed = {
        "cerberank_queued_tokens",
        'cerberank_errors_total{kind="internal"}',
        'cerberank_errors_total{kind="unavailable"}',
        'cerberank_requests_total{complete="false"}',
        'cerberank_request_phase_seconds_bucket{phase="total", le="0.5"}',
        'cerberank_tokens_total{stage="0"}',
        "cerberank_engine_busy_seconds_total",
    }
    assert {series for series in needed if not prometheus.query(series)} == set()
    wait_until(lambda: prometheus.query("cerberank:queue_seconds == 0"), seconds=WAIT_SECONDS)


def test_an_alert_comes_and_goes_with_the_service(service: Process, prometheus: Prometheus) -> None:
    """Nothing is alarmed while it is well; its death is noticed at once."""
    wait_until(lambda: prometheus.query("cerberank_ready == 1"), seconds=WAIT_SECONDS)
    wait_until(lambda: prometheus.alert_state("CerberankNoReplicaReady") == set(), seconds=WAIT_SECONDS)
    service.process.kill()
    service.process.wait()
    wait_until(lambda: prometheus.alert_state("CerberankNoReplicaReady") == {"pending"}, seconds=WAIT_SECONDS)
    assert prometheus.alert_state("CerberankReplicaNotReady") == {"pending"}
