"""The trackers of `--track` by name, and their packages, which are imported only if the tracker is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cerberank_models.output import installed_by
from cerberank_training.runs.tracking.tracker import Tracker

PACKAGES = {
    "tensorboard": ("tensorboard", "training"),
    "wandb": ("wandb", "wandb"),
    "mlflow": ("mlflow", "mlflow"),
}
"""The package of each tracker, and the extra that installs it."""


def check_trackers(names: Sequence[str]) -> None:
    """Raise ValueError, which names the extra, for a tracker whose package is not installed."""
    for name in names:
        package, extra = PACKAGES[name]
        if find_spec(package) is None:
            raise ValueError(f"--track {name} needs the package {package}; {installed_by(extra)}")


def open_trackers(names: Sequence[str], folder: Path, *, name: str, settings: Mapping[str, Any]) -> dict[str, Tracker]:
    """The trackers of the run in `folder`, which they show as `name`; `settings` may be nested."""
    flat = flattened(settings)
    trackers: dict[str, Tracker] = {}
    for tracker in dict.fromkeys(names):
        match tracker:
            case "tensorboard":
                from cerberank_training.runs.tracking.tensor_board import TensorBoard  # noqa: PLC0415 - slow to load

                trackers[tracker] = TensorBoard(folder, settings=flat)
            case "wandb":
                from cerberank_training.runs.tracking.weights_and_biases import WeightsAndBiases  # noqa: PLC0415 - an extra

                trackers[tracker] = WeightsAndBiases(folder, name=name, settings=flat)
            case "mlflow":
                from cerberank_training.runs.tracking.ml_flow import MlFlow  # noqa: PLC0415 - an extra

                trackers[tracker] = MlFlow(folder, name=name, settings=flat)
            case _:
                raise ValueError(f"--track is one of {', '.join(PACKAGES)}, not {tracker}")
    return trackers


def flattened(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings by dotted names, as text.

    >>> flattened({"train": {"steps": 20, "seed": 1}, "base": "b"})
    {'train.steps': '20', 'train.seed': '1', 'base': 'b'}
    """
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = str(value)
    return flat
