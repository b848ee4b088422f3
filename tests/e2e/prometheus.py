"""A real Prometheus on the project's configuration, for one test's service."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.service.observe import wait_until

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
WAIT_SECONDS = 60.0


@dataclass
class Prometheus:
    """A running one."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The instant vector of an expression."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}).raise_for_status().json()
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def alert_state(self, name: str) -> set[str]:
        return {series["metric"]["alertstate"] for series in self.query(f'ALERTS{{alertname="{name}"}}')}


@contextmanager
def run_prometheus(
    target: str,
    folder: Path,
    *,
    interval: str = "1s",
    rules: Callable[[str], str] = lambda text: text,
) -> Iterator[Prometheus]:
    """Scrapes `target` (its URL) at `interval`; `rules` may change the text of the rule files.

    Skips where there is no Prometheus.
    """
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs Debian's prometheus")
    copy = Path(shutil.copytree(FOLDER, folder / "prometheus"))
    config = yaml.safe_load((copy / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": interval, "evaluation_interval": interval}
    (scraping, _) = config["scrape_configs"]  # there is no proxy
    del scraping["dns_sd_configs"]
    scraping["static_configs"] = [{"targets": [target.removeprefix("http://")]}]
    config["scrape_configs"] = [scraping]
    del config["alerting"]  # there is no Alertmanager
    (copy / "prometheus.yml").write_text(yaml.safe_dump(config))
    for file in (copy / "rules").glob("*.yml"):
        file.write_text(rules(file.read_text()))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = [f"--config.file={copy / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    options += [f"--web.listen-address={address}", "--enable-feature=exemplar-storage"]
    log = folder / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen([program, *options], stdout=output, stderr=output)
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
