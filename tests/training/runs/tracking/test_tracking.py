"""The log and the trackers together: a tracker that fails later ends nothing, one that cannot begin ends all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from cerberank_training.runs.tracking.log_file import LogFile, read_log, results_of_log
from cerberank_training.runs.tracking.tracker import Tracking


class Failing:
    """A tracker that fails where it is told to, and counts its calls."""

    def __init__(self, where: str) -> None:
        self.where, self.calls = where, 0

    def _call(self, name: str) -> None:
        self.calls += 1
        if name == self.where:
            raise OSError(f"no {name}\nand more")

    def begin(self, step: int, seen: Mapping[str, int]) -> None:
        self._call("begin")

    def figures(self, step: int, values: Mapping[str, float]) -> None:
        self._call("figures")

    def close(self, *, finished: bool) -> None:
        self._call("close")


def test_a_failing_tracker_is_reported_once_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log and the other tracker get every figure; a tracker that fails at the end ends nothing either."""
    bad, late = Failing("figures"), Failing("close")
    tracking = Tracking(tmp_path, {"bad": bad, "late": late})
    tracking.begin(0)
    for step in (1, 2, 3):
        tracking.figures(step, {"loss": 1 / step})
    tracking.close(finished=True)
    assert (bad.calls, late.calls) == (2, 5)
    assert [line["loss"] for line in read_log(tmp_path / "log.jsonl")] == [1.0, 0.5, 0.333333]
    assert capsys.readouterr().err.splitlines() == [
        "cerberank: bad tracks no further, the run goes on: no figures",
        "cerberank: late tracks no further, the run goes on: no close",
    ]


def test_a_tracker_that_cannot_begin_is_refused(tmp_path: Path) -> None:
    """By its name, before the log is touched."""
    (tmp_path / "log.jsonl").write_text('{"step": 9}\n')
    with pytest.raises(ValueError, match=r"--track bad cannot begin: no begin$"):
        Tracking(tmp_path, {"bad": Failing("begin")}).begin(4)
    assert (tmp_path / "log.jsonl").read_text() == '{"step": 9}\n'


def reached(folder: Path) -> int:
    return results_of_log(folder, counts=bool)["reached"]


def test_the_log_is_cut_where_a_run_goes_on(tmp_path: Path) -> None:
    """Steps after the state are removed, and half a line, but no evaluation of the state's own step; a log that fits is
    left as it is; no number is not JSON.
    """
    path, log = tmp_path / "log.jsonl", LogFile(tmp_path)
    assert reached(tmp_path) == 0
    log.begin(0, {})
    for step in (1, 2, 3):
        log.figures(step, {"loss": float("nan") if step == 2 else 0.5, "pairs": 8})
        log.figures(step, {"dev_map": 50.0})
    path.write_text(path.read_text() + '{"step": 4, "lo')
    assert log.last_steps() == {"loss": 3, "pairs": 3, "dev_map": 3}
    assert reached(tmp_path) == 3
    log.begin(2, {})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line for line in lines if "loss" in line] == [
        {"step": 1, "loss": 0.5, "pairs": 8},
        {"step": 2, "loss": None, "pairs": 8},
    ]
    assert lines[-1] == {"step": 2, "dev_map": 50.0}
    before = path.stat().st_mtime_ns, path.stat().st_ino
    log.begin(2, {})
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    log.begin(0, {})
    assert path.read_text() == ""


def test_what_is_logged_has_reached_the_trackers(tmp_path: Path) -> None:
    """A kill in a tracker's call comes before the log, whose figures a resumed run does not give again."""

    class Killed(BaseException):
        pass

    class Slow(Failing):
        def figures(self, step: int, values: Mapping[str, float]) -> None:
            if step == 2:
                raise Killed

    tracking = Tracking(tmp_path, {"slow": Slow("")})
    tracking.begin(0)
    tracking.figures(1, {"loss": 0.5})
    with pytest.raises(Killed):
        tracking.figures(2, {"loss": 0.4})
    assert reached(tmp_path) == 1


def test_the_best_step_is_the_first_that_counts(tmp_path: Path) -> None:
    """The start does not count, nor steps of a warm start; of equal figures the first was kept."""
    log = LogFile(tmp_path)
    for step, value in enumerate((99.0, 90.0, 70.0, 80.0, 80.0)):
        log.figures(step, {"dev_map": value})
        log.figures(step, {"loss": 1.0})
    assert results_of_log(tmp_path, counts=lambda step: step > 1) == {"reached": 4, "best_step": 3, "start": 99.0}
    assert results_of_log(tmp_path, counts=lambda step: step > 4)["best_step"] is None
