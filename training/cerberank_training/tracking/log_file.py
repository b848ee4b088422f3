"""`log.jsonl` of a run's folder: a line of JSON for each step and for each evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cerberank_training.runs.step_log import cut_log

LOG = "log.jsonl"


class LogFile:
    """The tracker that every run has. Its file is part of the run's state, so an error of writing ends the run."""

    def __init__(self, folder: Path) -> None:
        """The log of the run in `folder`."""
        self._path = folder / LOG

    def last_steps(self) -> dict[str, int]:
        """The last step for which each figure was logged, by the figure's name."""
        return {name: record["step"] for record in read_log(self._path) for name in record if name != "step"}

    def begin(self, step: int, seen: Mapping[str, int]) -> None:
        """Remove the lines of steps after `step`, and an incomplete last line."""
        cut_log(self._path, step or -1)  # a run from step 0 measures step 0 again

    def figures(self, step: int, values: Mapping[str, float]) -> None:
        """Append a line, with six significant digits of each figure; JSON has no infinities, so they become null."""
        rounded = {name: _rounded(value) for name, value in values.items()}
        with self._path.open("a", encoding="utf-8") as log:
            log.write(json.dumps({"step": step} | rounded) + "\n")

    def close(self, *, finished: bool) -> None:
        """Do nothing, because no file is kept open."""


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records of a log without incomplete lines of killed processes; empty if there is no file."""
    records = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            records.append(record)
    return records


def _rounded(value: float) -> float | int | None:
    if isinstance(value, int):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None
