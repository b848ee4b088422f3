"""A short form of `python -m tools.chaos`."""

from __future__ import annotations

from pathlib import Path

from tools.chaos import Chaos
from tools.ledger import faults_of
from tools.nginx import program


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
