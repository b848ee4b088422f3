"""The parts of `python -m tools.chaos` in a few seconds, and that its ledger finds what it looks for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tools.chaos import Chaos, Weight, growths
from tools.ledger import faults_of
from tools.nginx import program

from cerberank_benchmarks.clients.load import Answer

SCORES = [{0: 0.2, 1: 0.9}]
ANSWER = Answer(id="a", candidates=2, fate="answered", seconds=1.0, ended=1.0, answer_id="a", version="1", order=(1, 0))


def line(**fields: object) -> str:
    """A line of the proxy's log."""
    return json.dumps({"time": "", "request_id": "a", "status": 200} | fields)


def faults_in(answer: Answer, *lines: str) -> set[str]:
    """The faults of one answer."""
    return {name for name, ids in faults_of([answer], "\n".join(lines), {"1"}, SCORES).items() if ids}


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        ({}, set()),
        ({"status": 0}, {"no answer"}),
        ({"version": "2"}, {"a version that was not ready"}),
        ({"order": (0, 1)}, {"a wrong order"}),
        ({"order": (1,)}, {"a wrong order"}),
        ({"answer_id": "b"}, {"an answer to another request"}),
        ({"status": 503}, {"another status than the proxy's", "a refusal without Retry-After"}),
        ({"status": 502, "retry_after": "1"}, {"another status than the proxy's", "neither 200 nor 503"}),
    ],
)
def test_the_ledger_finds_each_fault(change: dict[str, Any], faults: set[str]) -> None:
    """Each by its own name, and none in a good answer."""
    assert faults_in(replace(ANSWER, **change), line()) == faults


def test_a_request_is_in_the_proxy_s_log_once() -> None:
    """Twice is a fault, and so is not at all; the status is the proxy's."""
    assert faults_in(ANSWER, line(), line()) == {"not once in the proxy's log"}
    assert "not once in the proxy's log" in faults_in(ANSWER)
    assert faults_in(replace(ANSWER, status=503, retry_after="1"), line(status=503)) == set()


def test_memory_is_compared_within_a_process_s_lifetime() -> None:
    """From its second push on: a restart is not a loss, the first loads are not growth, and one weight is none."""
    lifetimes = [
        *((0, 10, pushes, megabytes) for pushes, megabytes in ((1, 100.0), (3, 200.0), (4, 300.0), (6, 220.0))),
        *((1, 11, pushes, megabytes) for pushes, megabytes in ((1, 100.0), (3, 200.0))),
        *((1, 12, pushes, megabytes) for pushes, megabytes in ((4, 50.0), (5, 90.0), (6, 100.0), (6, 130.0))),
    ]
    weights = [Weight(replica=r, pid=pid, pushes=pushes, megabytes=mb) for r, pid, pushes, mb in lifetimes]
    assert growths(weights) == {"0/10": 1.1, "1/12": 1.3}


def test_a_fleet_recovers_from_some_faults(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Each request gets one right answer while a replica is killed, stands still, and a torn version is pushed."""
    program()
    names = ["kill -9", "hung process", "torn push"]
    chaos = Chaos(
        checkpoint=tiny_checkpoint,
        folder=tmp_path,
        seconds=None,
        seed=1,
        rate=10.0,
        candidates=5,
        hold=1.0,
        settle=1.0,
        names=names,
    )
    report = chaos.run()
    assert sorted(row.fault for row in chaos.rows) == sorted(names)
    killed = {weight.replica for weight in chaos.weights if weight.pid != chaos.weights[weight.replica].pid}
    assert len(killed) == 1, "only the killed replica has a second process"
    assert all(row.recovery is not None for row in chaos.rows)
    assert report["wrong"] == {name: [] for name in faults_of([], "", set(), [])}
    assert set(report["statuses"]) <= {200, 503}  # type: ignore[call-overload]
