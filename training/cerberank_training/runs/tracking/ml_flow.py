"""Figures for MLflow; MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME choose the server and the experiment."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from cerberank_training.runs.tracking.tracker import store_id, stored_id, unseen

EXPERIMENT = "cerberank"
LONGEST = 6000
"""The largest number of characters of a parameter's value in MLflow."""


class MlFlow:
    """One MLflow run, which all calls of a resumed training run use."""

    def __init__(self, folder: Path, *, name: str, settings: Mapping[str, str]) -> None:
        """Track the run in `folder`."""
        self._folder = folder
        self._name = name
        self._settings = settings
        self._seen: Mapping[str, int] = {}
        self._client: MlflowClient
        self._id = ""

    def begin(self, step: int, seen: Mapping[str, int]) -> None:
        """Create an MLflow run with the settings as its parameters, or continue the one of this folder.

        MLflow does not allow a parameter to change. A setting that a later call changed becomes a tag of the run.
        """
        self._client = MlflowClient()
        self._seen = seen
        known = stored_id(self._folder, "mlflow")
        if known is None:
            self._id = self._client.create_run(self._experiment(), run_name=self._name).info.run_id
            store_id(self._folder, "mlflow", self._id)
        else:
            self._id = known
            self._client.update_run(known, status="RUNNING")
        logged = self._client.get_run(self._id).data.params
        settings = {name: value[:LONGEST] for name, value in self._settings.items()}
        new = [Param(name, value) for name, value in settings.items() if name not in logged]
        self._client.log_batch(self._id, params=new)
        for name, value in settings.items():
            if logged.get(name, value) != value:
                self._client.set_tag(self._id, name, value)

    def figures(self, step: int, values: Mapping[str, float]) -> None:
        """Log the figures that no earlier call has logged, because MLflow cannot remove points."""
        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, step) for name, value in unseen(step, values, self._seen).items()]
        if metrics:
            self._client.log_batch(self._id, metrics=metrics)

    def close(self, *, finished: bool) -> None:
        """Set the state of the MLflow run."""
        self._client.set_terminated(self._id, "FINISHED" if finished else "FAILED")

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        experiment = self._client.get_experiment_by_name(name)
        return str(experiment.experiment_id if experiment else self._client.create_experiment(name))
