"""Each tracker, read back after a run that was killed and resumed: every figure of every step, once."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cerberank_training.runs.tracking import opening
from cerberank_training.runs.tracking.tracker import Tracker, Tracking

Points = dict[str, list[tuple[int, float]]]


def killed_and_resumed(folder: Path, *names: str, saved: int = 4) -> Points:
    """A run of six steps, measured at 0, 3 and 6 and killed in a measurement after the state of step `saved`.

    The second call goes on from the state; its times differ. Returns the points of log.jsonl.
    """
    trackers = opened(folder, *names)
    steps = range(1, 7 if saved else 4)
    tracking = Tracking(folder, trackers)
    tracking.begin(0)
    tracking.figures(0, {"dev_map": 0.0})
    for step in steps[:-1]:
        tracking.figures(step, {"loss": 1 / step, "seconds": 1.0})
        if step == 3:
            tracking.figures(step, {"dev_map": 3.0})
    tracking.figures(steps[-1], {"loss": 1 / steps[-1], "seconds": 1.0})
    tracking.close(finished=False)
    if "tensorboard" in names:
        time.sleep(1)  # TensorBoard orders the files of one process and second by a number as text, 10 before 9
    tracking = Tracking(folder, opened(folder, *names))
    tracking.begin(saved)
    if not saved:
        tracking.figures(0, {"dev_map": 0.0})
    for step in range(saved + 1, 7):
        tracking.figures(step, {"loss": 1 / step, "seconds": 2.0})
        if step % 3 == 0:
            tracking.figures(step, {"dev_map": float(step)})
    tracking.close(finished=True)
    points: Points = {}
    for line in map(json.loads, (folder / "log.jsonl").read_text().splitlines()):
        for name, value in line.items():
            if name != "step":
                points.setdefault(name, []).append((line["step"], value))
    assert [step for step, _ in points["loss"]] == [1, 2, 3, 4, 5, 6]
    assert points["dev_map"] == [(0, 0.0), (3, 3.0), (6, 6.0)]
    return points


def opened(folder: Path, *names: str) -> dict[str, Tracker]:
    folder.mkdir(exist_ok=True)
    return opening.open_trackers(names, folder, name="a run", settings={"train": {"steps": 6}})


def check(tracked: Points, points: Points, *, repeated: bool) -> None:
    """The same steps as the log, once each, and values; times were measured anew where a tracker keeps its points."""
    assert {name: [step for step, _ in series] for name, series in tracked.items()} == {
        name: [step for step, _ in series] for name, series in points.items()
    }
    for name in points:
        if not repeated or "second" not in name:
            series, wanted = ([value for _, value in each[name]] for each in (tracked, points))
            assert series == pytest.approx(wanted, rel=1e-5), name


@pytest.mark.parametrize("saved", [0, 4])
def test_tensorboard_has_every_point_once(saved: int, tmp_path: Path) -> None:
    """Its own reader drops what the killed call wrote after the state that the run went on from."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    points = killed_and_resumed(tmp_path, "tensorboard", saved=saved)
    reader = EventAccumulator(str(tmp_path / "tensorboard"))
    reader.Reload()
    tags = reader.Tags()
    tracked = {name: [(event.step, event.value) for event in reader.Scalars(name)] for name in tags["scalars"]}
    check(tracked, points, repeated=False)
    (text,) = reader.Tensors("settings/text_summary")[-1].tensor_proto.string_val
    assert b"| train.steps | 6 |" in text


def test_mlflow_has_every_point_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder, which MLflow makes faster than a database: one run, finished, with the settings as parameters."""
    from mlflow.tracking import MlflowClient

    from cerberank_training.runs.tracking.ml_flow import MlFlow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", str(tmp_path / "mlruns"))
    points = killed_and_resumed(tmp_path / "run", "mlflow")
    client = MlflowClient()
    experiment = client.get_experiment_by_name("cerberank")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("a run", "FINISHED")
    assert run.data.params == {"train.steps": "6"}
    history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    check(
        {name: [(each.step, each.value) for each in series] for name, series in history.items()}, points, repeated=True
    )
    resumed = MlFlow(tmp_path / "run", name="a run", settings={})
    resumed.begin(6, {})
    resumed.figures(7, {})  # a step without figures is none of MLflow's


def test_wandb_has_every_point_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline: a folder for each call, of one run, whose histories together have every step once."""
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    points = killed_and_resumed(tmp_path / "run", "wandb")
    tracked: Points = {}
    identities = set()
    files = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2
    for file in files:
        records: list[Any] = []
        # W&B's own process may write the last records shortly after the run is finished.
        for _ in range(100):
            records = [Record.FromString(data) for data in leveldb_records(file.read_bytes()[7:])]
            if records and records[-1].HasField("exit"):
                break
            time.sleep(0.1)
        for record in records:
            if record.HasField("run"):
                identities.add(record.run.run_id)
            step = record.history.step.num
            for item in record.history.item:
                name = item.key or "/".join(item.nested_key)
                if not name.startswith("_"):
                    tracked.setdefault(name, []).append((step, json.loads(item.value_json)))
    check(tracked, points, repeated=True)
    assert len(identities) == 1


def leveldb_records(log: bytes) -> Iterator[bytes]:
    """The records of a log in LevelDB's format: blocks of 32 KiB, of pieces with checksum, length and type."""
    size, record, place = 32_768, b"", 0
    while place + 7 <= len(log):
        if size - place % size < 7:
            place += size - place % size
            continue
        length, kind = struct.unpack("<HB", log[place + 4 : place + 7])
        record += log[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield record
            record = b""


def test_a_tracker_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, with the extra that brings it."""
    monkeypatch.setattr(opening, "find_spec", lambda package: None)
    with pytest.raises(
        ValueError, match=r"--track wandb needs the package wandb; run in the checkout: pip install '\.\[wandb\]'"
    ):
        opening.check_trackers(["wandb"])
