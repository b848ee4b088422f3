"""Runs a real Prometheus and a real Alertmanager on the project's configuration."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import yaml

from cerberank_benchmarks.clients.server import free_port, running_program
from tools.process import ROOT, installed, until

FOLDER = ROOT / "deploy" / "prometheus"
ALERTMANAGER = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Prometheus:
    """A running one."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The instant vector of an expression."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}).raise_for_status().json()
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def firing(self) -> set[str]:
        """The names of the firing alerts, with the objective of those that have one."""
        labels = [series["metric"] for series in self.query('ALERTS{alertstate="firing"}')]
        return {" ".join(filter(None, (each["alertname"], each.get("slo")))) for each in labels}


@contextmanager
def run_prometheus(
    targets: Sequence[str],
    folder: Path,
    *,
    interval: str = "1s",
    rules: Callable[[str], str] = lambda text: text,
    proxy: str | None = None,
    alertmanager: str | None = None,
) -> Iterator[Prometheus]:
    """Scrape `targets` and the counts of `proxy` (URLs) at `interval`; `rules` may change the text of the rule files.

    Raises MissingProgramError.
    """
    program = installed("prometheus", "prometheus")
    copy = Path(shutil.copytree(FOLDER, folder / "prometheus"))
    config = yaml.safe_load((copy / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": interval, "evaluation_interval": interval}
    urls = [targets, [proxy] if proxy else []]
    for scraping, addresses in zip(config["scrape_configs"], urls, strict=True):
        del scraping["dns_sd_configs"]
        scraping["static_configs"] = [{"targets": [url.removeprefix("http://") for url in addresses]}]
    (receiving,) = config["alerting"]["alertmanagers"]
    receiving["static_configs"] = [{"targets": [alertmanager.removeprefix("http://")] if alertmanager else []}]
    (copy / "prometheus.yml").write_text(yaml.safe_dump(config))
    for file in (copy / "rules").glob("*.yml"):
        file.write_text(rules(file.read_text()))
    address = f"127.0.0.1:{free_port()}"
    options = [f"--config.file={copy / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    options += [f"--web.listen-address={address}", "--enable-feature=exemplar-storage"]
    ready = partial(_ready, f"http://{address}")
    with running_program([program, *options], folder / "prometheus.log", ready, seconds=WAIT_SECONDS):
        yield Prometheus(f"http://{address}")


@dataclass(frozen=True)
class Notification:
    """An alert that Alertmanager has sent."""

    receiver: str
    alert: str
    status: str
    at: float
    """Its arrival, by the monotonic clock."""


@dataclass(frozen=True)
class Alertmanager:
    """A running one, and what it has sent."""

    url: str
    sent: list[Notification] = field(default_factory=list)

    def seconds_until(self, receiver: str, alert: str, since: float, at_most: float) -> float:
        """Wait until the alert is sent to the receiver, and return the seconds `since`. Raises TimeoutError."""

        def arrived() -> list[float]:
            sent = (each for each in self.sent if (each.receiver, each.alert, each.status) == notification)
            return [each.at for each in sent if each.at > since]

        notification = (receiver, alert, "firing")
        until(arrived, seconds=max(0.0, since + at_most - time.monotonic()))
        return min(arrived()) - since


@contextmanager
def run_alertmanager(folder: Path, changes: Callable[[str], str] = lambda text: text) -> Iterator[Alertmanager]:
    """Send alerts to a list, by the committed routes; `changes` may change their text. Raises MissingProgramError."""
    program = installed("prometheus-alertmanager", "prometheus-alertmanager")
    address = f"127.0.0.1:{free_port()}"
    running = Alertmanager(f"http://{address}")

    # It takes the place of the operators' own receivers.
    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Note the alerts of one message."""
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            running.sent.extend(
                Notification(self.path[1:], alert["labels"]["alertname"], alert["status"], time.monotonic())
                for alert in message["alerts"]
            )
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        try:
            config = yaml.safe_load(changes(ALERTMANAGER.read_text()))
            for receiver in config["receivers"]:
                hook = f"http://127.0.0.1:{server.server_port}/{receiver['name']}"
                receiver["webhook_configs"] = [{"url": hook}]
            file = folder / "alertmanager.yml"
            file.write_text(yaml.safe_dump(config))
            options = [f"--config.file={file}", f"--storage.path={folder / 'alertmanager'}"]
            options += [f"--web.listen-address={address}", "--cluster.listen-address="]
            ready = partial(_ready, f"http://{address}")
            with running_program([program, *options], folder / "alertmanager.log", ready, seconds=WAIT_SECONDS):
                yield running
        finally:
            server.shutdown()


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready").status_code == 200
    except httpx.TransportError:
        return False
