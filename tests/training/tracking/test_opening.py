"""Each tracker, read back after a run that was killed and resumed: every figure of every step, once."""

from __future__ import annotations

import json
import shutil
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.tiny import random_ranker
from tests.training.learning.test_train import CONFIG
from tests.training.letters import encoder, sampler

from cerberank_training.learning.train import Run
from cerberank_training.tracking import opening
from cerberank_training.tracking.log_file import LogFile

Points = dict[str, list[tuple[int, float]]]


class Killed(Exception):
    """Stands for kill -9 during an evaluation: nothing of the run is executed after it but what Python must."""


def killed_and_resumed(folder: Path, *names: str, evaluations: int = 1, logs: bool = True) -> Points:
    """Killed in the evaluation of step 6, after a state, or in that of step 3, before any; the points of log.jsonl.

    Without `logs` the kill comes before the figures of step 6 are logged, when the trackers have them.
    """
    config = replace(CONFIG, final_only=0.0, stages="joint", save_every=4)
    values = iter([0.5, 1.0][: 1 + evaluations])

    def metric(_: object) -> Mapping[str, float]:
        value = next(values, None)
        if value is None:
            raise Killed
        return {"final": value, "head 1": value + 1}

    def run() -> Run:
        trackers = opening.open_trackers(names, folder, name="a run", settings={"train": {"steps": config.steps}})
        return Run(folder, random_ranker(), sampler(), encoder(), config, trackers=trackers)

    with pytest.MonkeyPatch.context() as patch:
        if not logs:
            patch.setattr(LogFile, "figures", unlogged(6, LogFile.figures))
        with pytest.raises(Killed):
            run().train(metric)
    values = iter([2.0] if evaluations else [0.5, 1.0, 2.0])
    if "tensorboard" in names:
        time.sleep(1)  # TensorBoard orders the files of one process and second by a number as text, 10 before 9
    run().train(metric)
    points: Points = {}
    for line in map(json.loads, (folder / "log.jsonl").read_text().splitlines()):
        for name, value in line.items():
            if name != "step":
                points.setdefault(name, []).append((line["step"], value))
    assert [step for step, _ in points["loss"]] == [1, 2, 3, 4, 5, 6]
    assert points["dev_map"] == [(0, 0.5), (3, 1.0), (6, 2.0)]
    assert points["dev_map/head_1"] == [(0, 1.5), (3, 2.0), (6, 3.0)]
    return points


def unlogged(last: int, figures: Callable[[LogFile, int, Mapping[str, float]], None]) -> Callable[..., None]:
    """`LogFile.figures`, killed in step `last`."""

    def killed(log: LogFile, step: int, values: Mapping[str, float]) -> None:
        if step == last:
            raise Killed
        figures(log, step, values)

    return killed


def check(tracked: Points, points: Points, *, repeated: bool) -> None:
    """The same steps as the log, once each, and values; times were measured anew where a tracker keeps its points."""
    assert {name: [step for step, _ in found] for name, found in tracked.items()} == {
        name: [step for step, _ in found] for name, found in points.items()
    }
    for name in points:
        if not repeated or "second" not in name:
            found, wanted = ([value for _, value in each[name]] for each in (tracked, points))
            assert found == pytest.approx(wanted, rel=1e-5), name


@pytest.mark.parametrize("evaluations", [0, 1])
def test_tensorboard_has_every_point_once(evaluations: int, tmp_path: Path) -> None:
    """Its own reader drops what the killed call wrote after the state that the run went on from."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    points = killed_and_resumed(tmp_path, "tensorboard", evaluations=evaluations)
    reader = EventAccumulator(str(tmp_path / "tensorboard"))
    reader.Reload()
    tags = reader.Tags()
    tracked = {name: [(event.step, event.value) for event in reader.Scalars(name)] for name in tags["scalars"]}
    check(tracked, points, repeated=False)
    (text,) = reader.Tensors("settings/text_summary")[-1].tensor_proto.string_val
    assert b"| train.steps | 6 |" in text


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # of MLflow's own tables
@pytest.mark.parametrize("logs", [True, False])
def test_mlflow_has_every_point_once(
    logs: bool, mlflow_tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a database file: one run, finished, with the settings as parameters, wherever the kill comes."""
    from mlflow.tracking import MlflowClient

    from cerberank_training.tracking.ml_flow import MlFlow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shutil.copy(mlflow_tables, tmp_path / 'mlflow.db')}")
    points = killed_and_resumed(tmp_path / "run", "mlflow", logs=logs)
    client = MlflowClient()
    experiment = client.get_experiment_by_name("cerberank")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("a run", "FINISHED")
    assert run.data.params == {"train.steps": "6"}
    history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    check({name: [(each.step, each.value) for each in found] for name, found in history.items()}, points, repeated=True)
    resumed = MlFlow(tmp_path / "run", name="a run", settings={})
    resumed.begin(6, {})
    resumed.figures(7, {})  # a step without figures is none of MLflow's


def test_wandb_has_every_point_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline: a folder for each call, of one run, whose histories together have every step once."""
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    points = killed_and_resumed(tmp_path / "run", "wandb")
    tracked: Points = {}
    identities = set()
    files = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2
    for file in files:
        for data in leveldb_records(file.read_bytes()[7:]):
            record = Record()
            record.ParseFromString(data)
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
