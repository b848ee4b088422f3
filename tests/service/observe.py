"""Looks at a running app: waiting for a condition, reading its metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cerberank_service.engine.engine import Engine
from cerberank_service.service import Service


def wait_until(condition: Callable[[], object], *, seconds: float = 60.0, every: float = 0.002) -> None:
    """Poll, less often the longer it takes: a condition that asks the app takes the processor from what it waits for.

    Fails the test when the condition does not come true.
    """
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(every)
        every = max(every, min(1.2 * every, 0.03))


def service_of(client: Any) -> Service:
    """The parts of the app."""
    service = client.app.state.service
    assert isinstance(service, Service)
    return service


def engine_of(client: Any) -> Engine:
    """The engine of the only version that an app serves."""
    (live,) = service_of(client).versions.snapshot.live()
    engine = live.engine
    assert isinstance(engine, Engine)
    return engine


def samples(client: Any) -> dict[str, float]:
    """Every sample of `/metrics`, as `name{label=value,...}` with the labels in alphabetical order."""
    found = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def set_speed(client: Any, seconds_per_token: float) -> None:
    """Each token takes so long from now on, as admission predicts it, in three stages."""
    speeds = engine_of(client).speeds
    speeds.observe = lambda *args: None  # it stays as it is set
    speeds.seconds_per_token, speeds.fixed_seconds = [seconds_per_token / 3] * 3, [0.0] * 3


def logged_fields(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The names of the fields without effect that were logged."""
    records = [record.__dict__.get("fields", {}) for record in caplog.records]
    return [fields["field"] for fields in records if "field" in fields]
