from __future__ import annotations

import logging
import subprocess
import sys

import pytest
from starlette.testclient import TestClient
from tests.service.observe import samples, wait_until

from cerberank_service.telemetry.descriptors import DescriptorWatch
from cerberank_service.telemetry.metrics import Metrics

EXHAUST = """
import os, resource
from cerberank_service.telemetry.descriptors import none_left
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
before, opened = none_left(), []
try:
    while True:
        opened.append(os.dup(0))
except OSError:
    during = none_left()
os.close(opened.pop())
print(before, during, none_left())
"""


def test_a_shortage_is_found_and_its_end_too() -> None:
    """In a process of its own, which takes all descriptors that it may have."""
    done = subprocess.run([sys.executable, "-c", EXHAUST], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]


def test_a_shortage_is_logged_once_and_counted_by_the_second(caplog: pytest.LogCaptureFixture) -> None:
    """One line when it begins and one when it ends, however long it lasts."""
    found = [False, True, True, True, False, False, True]
    metrics, looks = Metrics(), iter(found)
    watch = DescriptorWatch(metrics, lambda: next(looks))
    with caplog.at_level(logging.INFO):
        for _ in found:
            watch.look()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO", "ERROR"]
    assert metrics.registry.get_sample_value("cerberank_without_descriptors_seconds_total") == 4.0


def test_the_service_looks(client: TestClient) -> None:
    """From its start on; the process's own figures are there as well."""
    client.app.state.service.descriptors._none_left = lambda: True  # type: ignore[attr-defined]
    wait_until(lambda: samples(client)["cerberank_without_descriptors_seconds_total{}"] > 0.0)
    figures = samples(client)
    assert figures["process_open_fds{}"] <= figures["process_max_fds{}"]
