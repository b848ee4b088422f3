"""A real Prometheus scrapes the real process: every series that dashboard and alerts ask for is there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tools.monitoring import WAIT_SECONDS, Prometheus, run_prometheus
from tools.process import Process, serving

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_service.access.key_file import add_key

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "cerberank.json").read_text())
QUERIES = {
    f"{panel['title']}: {target['legendFormat']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", [])
}
ON_A_GPU = {name for name, query in QUERIES.items() if "cerberank_device_" in query or "cerberank_graph_" in query}
"""Queries that have no answer on a processor."""
WITHOUT_ANSWER = {
    name for name, query in QUERIES.items() if "cerberank_proxy_" in query or "cerberank_rejected_versions_" in query
}
"""Queries of counts that only a proxy has (`tools/outage.py`), and of versions that were rejected."""
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Path:
    """A stable and a shadow version."""
    folder = tmp_path_factory.mktemp("store")
    store, stable = FolderStore(folder / "store"), read_checkpoint(tiny_checkpoint)
    shadow = revise_checkpoint(stable, folder / "2", version="2")
    for checkpoint, label in ((stable, "stable"), (shadow, "shadow")):
        pushed = store.push(checkpoint)
        store.move_label(pushed.model, label, pushed.version)
    return folder / "store"


@pytest.fixture
def key(tmp_path: Path) -> str:
    """A client's key, in the file that the service reads."""
    return add_key(tmp_path / "keys", "client")


@pytest.fixture
def service(store: Path, tmp_path: Path, key: str) -> Iterator[Process]:
    """It mirrors every question, collects every trace, and knows its clients."""
    settings = {"CERBERANK_SHADOW_PERCENT": "100", "CERBERANK_TRACES": "true"}
    settings["CERBERANK_KEYS_FILE"] = str(tmp_path / "keys")
    with serving(Path(), tmp_path / "log", CERBERANK_STORE=str(store), **settings) as running:
        yield running


@pytest.fixture
def prometheus(service: Process, tmp_path: Path) -> Iterator[Prometheus]:
    with run_prometheus([service.url], tmp_path) as running:
        yield running


def ask(service: Process, key: str) -> None:
    """One whole answer, one whose deadline passes, one that drops."""
    candidates = ["it was built in paris", "330 metres", "bees make honey", "it was built in paris"]
    body = {"question": "how tall is the tower ?", "candidates": candidates}
    for options in ({}, {"deadline_ms": 0.001}, {"drop_ratio": 0.5}):
        headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "Authorization": f"Bearer {key}"}
        httpx.post(f"{service.url}/v1/rank", json=body | options, headers=headers).raise_for_status()


def test_every_query_of_the_dashboard_has_an_answer(service: Process, prometheus: Prometheus, key: str) -> None:
    """A number, not an empty graph and no NaN, while requests come in; the rules are evaluated without an error."""
    end = time.monotonic() + WAIT_SECONDS
    missing = set(QUERIES) - ON_A_GPU - WITHOUT_ANSWER
    while missing and time.monotonic() < end:
        ask(service, key)
        missing = {name for name in missing if not _numbers(prometheus, QUERIES[name])}
        time.sleep(0.5)
    assert missing == set()
    groups = httpx.get(f"{prometheus.url}/api/v1/rules").json()["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > 20
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}  # unknown: not its turn yet
    exemplars = httpx.get(
        f"{prometheus.url}/api/v1/query_exemplars",
        params={"query": "cerberank_request_phase_seconds_bucket", "start": time.time() - 60, "end": time.time()},
    ).json()["data"]
    assert {each["labels"]["trace_id"] for series in exemplars for each in series["exemplars"]} == {TRACE}


def _numbers(prometheus: Prometheus, expression: str) -> bool:
    concrete = expression.replace("$job", "cerberank").replace("$__rate_interval", "30s")
    values = [series["value"][1] for series in prometheus.query(concrete)]
    return bool(values) and "NaN" not in values and "+Inf" not in values
