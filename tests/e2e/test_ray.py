"""The service on Ray Serve, on a real cluster: it grows with the load, and survives a replica's death."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.ray_cluster import PATIENTLY, RayService, run_on_ray
from tools.process import until

pytest.importorskip("ray.serve", reason="needs the extra ray-serve", exc_type=ImportError)

CLIENTS = 6
RETRY_AFTER = (1.0, 2.0)
"""Seconds before each retry: what Cohere's SDK does by default (cohere 7, `base_max_retries`), without its jitter."""
# Larger than HAProxy's usual buffer: a body that does not fit could not be sent a second time.
CANDIDATES = ["Harry Beck drew the map.", "London is large.", "The Central line is red.", "a " * 20_000]
BODY = {"question": "Who drew the map of the London Underground?", "candidates": CANDIDATES}


@dataclass
class Load:
    """Clients that ask without a pause, and retry as the vendors' do when they got no answer."""

    url: str
    answers: list[httpx.Response] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Reasons for retrying requests."""
    lost: list[str] = field(default_factory=list)
    """Reasons for which requests failed in the end."""
    waiting: dict[int, int] = field(default_factory=dict)
    """By client: how many answers there were when its request was sent."""
    _stopped: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def overtaken(self) -> set[int]:
        """Clients whose request has waited while everybody else's could have been answered twice."""
        return {client for client, sent in list(self.waiting.items()) if len(self.answers) - sent > 2 * CLIENTS}

    def _ask(self, number: int) -> None:
        with httpx.Client(timeout=PATIENTLY["seconds"]) as client:
            while not self._stopped.is_set():
                self.waiting[number] = len(self.answers)
                why = self._try(client)
                for seconds in RETRY_AFTER:
                    if why is not None:
                        self.failed.append(why)
                        time.sleep(seconds)
                        why = self._try(client)
                if why is not None:
                    self.lost.append(why)

    def _try(self, client: httpx.Client) -> str | None:
        """Ask; why there was no answer."""
        try:
            answer = client.post(f"{self.url}/v1/rank", json=BODY)
        except httpx.HTTPError as error:
            return repr(error)
        if answer.status_code != 200:
            return f"{answer.status_code} {dict(answer.headers)} {answer.text}"
        self.answers.append(answer)
        return None


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RayService]:
    """One replica, and a second one as soon as it is busy for a hundredth of the time."""
    scaling: dict[str, Any] = {"min_replicas": 1, "max_replicas": 2, "upscale_delay_s": 0, "look_back_period_s": 2}
    scaling["policy"] = {
        "policy_function": "cerberank_service.ray_serve.autoscaling:OfferedSecondsPolicy",
        "policy_kwargs": {"utilisation": 0.01},
    }
    with run_on_ray(tmp_path, autoscaling=scaling) as running:
        yield running


@pytest.fixture
def load(service: RayService) -> Iterator[Load]:
    load = Load(service.url)
    load.start()
    yield load
    load.stop()


def test_a_killed_replica_loses_no_request(service: RayService, load: Load) -> None:
    """A second replica comes with the load; one is frozen, so that it surely holds requests, and killed.

    All are answered, by HAProxy's retry on another replica or, for those who waited then, by the client's. Ray puts a
    new one in its place.
    """
    until(lambda: len(service.replicas()) == 2, **PATIENTLY)
    before = service.replicas()
    until(lambda: all(service.has_answered(replica) for replica in before), **PATIENTLY)
    victim = min(before)
    os.kill(victim, signal.SIGSTOP)
    until(load.overtaken, **PATIENTLY)
    before_the_end = len(load.answers)
    assert load.failed == []
    os.kill(victim, signal.SIGKILL)
    until(lambda: service.replicas() - before, **PATIENTLY)
    until(lambda: not load.overtaken(), **PATIENTLY)
    until(lambda: len(load.answers) > before_the_end + CLIENTS, **PATIENTLY)
    load.stop()
    assert load.lost == [], load.failed
    assert len(load.failed) <= CLIENTS * len(RETRY_AFTER), load.failed
    orders = {tuple(result["index"] for result in answer.json()["results"]) for answer in load.answers}
    assert len(orders) == 1
    assert {len(answer.headers.get_list("X-Request-Id")) for answer in load.answers} == {1}
