"""The result of a run as a call from Python gets it. Importing it loads no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cerberank_training.tracking.log_file import LOG, read_log


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """The result of a run."""

    checkpoint: Path
    """The folder with the weights that were best on dev."""
    dev: float
    """The MAP on the dev questions in percent, or the metric of `select`."""
    best_step: int | None
    """The step of these weights; None in processes other than the first."""
    steps: int
    """The last step."""
    stopped_early: bool
    """True if patience ended the run before the last of the steps that were asked for."""
    figures: Mapping[str, float]
    """This figure at the best step by `final` and, of a student, by exits and heads, such as `exit 1` and `head 2`."""
    history: tuple[Mapping[str, Any], ...]
    """The rows of log.jsonl in order: `step` with the losses and rates of a step, or with the figures on dev."""

    @classmethod
    def of(cls, checkpoint: Path, results: Mapping[str, Any], *, out: Path, figure: str = "dev_map") -> Trained:
        """The result of the finished run in `out`, with the `results` of its record.

        `figure` is the log's name of the one that chose the weights; those of exits and heads follow it, as in
        `dev_map/exit_1`.
        """
        history, step = read_log(out / LOG), results.get("best_step")
        at_best = next((row for row in history if row["step"] == step and figure in row), {})
        parts = {name: value for name, value in at_best.items() if name.startswith(f"{figure}/")}
        steps = results.get("reached", 0)
        return cls(
            checkpoint=checkpoint,
            dev=results["best"],
            best_step=step,
            steps=steps,
            stopped_early=steps < results.get("asked", steps),
            figures={"final": results["best"]}
            | {name.partition("/")[2].replace("_", " "): value for name, value in parts.items()},
            history=tuple(history),
        )
