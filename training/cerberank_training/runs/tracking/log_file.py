"""`log.jsonl` of a run's folder: a line of JSON for each step and for each evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cerberank_models.checkpoint.atomic import write_bytes
from cerberank_models.json_lines import load_json

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
        """Remove the lines of steps after `step`, and the incomplete line of a killed process, so that no step is there
        twice.
        """
        last = step or -1  # a run from step 0 measures step 0 again
        lines = _lines(self._path)
        before = [line for line in lines if (record := _record(line)) is not None and record["step"] <= last]
        if len(before) < len(lines):
            write_bytes(self._path, b"".join(before))

    def figures(self, step: int, values: Mapping[str, float]) -> None:
        """Append a line, with six significant digits of each figure; JSON has no infinities, so they become null."""
        rounded = {name: _rounded(value) for name, value in values.items()}
        with self._path.open("a", encoding="utf-8") as log:
            log.write(json.dumps({"step": step} | rounded) + "\n")

    def close(self, *, finished: bool) -> None:
        """Do nothing, because no file is kept open."""


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records of a log without incomplete lines of killed processes; empty if there is no file."""
    return [record for line in _lines(path) if (record := _record(line)) is not None]


def results_of_log(folder: Path, *, counts: Callable[[int], bool], figure: str = "dev_map") -> dict[str, Any]:
    """The last step of the run in `folder`, the first of its best steps by `figure`, and this figure before the first.

    A best step is one for which `counts` is true.
    """
    records = read_log(folder / LOG)
    figures = {record["step"]: value for record in records if (value := record.get(figure)) is not None}
    return {
        "reached": max((record["step"] for record in records), default=0),
        "best_step": max((step for step in figures if step and counts(step)), key=figures.__getitem__, default=None),
        "start": figures.get(0),
    }


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True) if path.is_file() else []


def _record(line: bytes) -> dict[str, Any] | None:
    """The figures of a line with their step; None for an incomplete line."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = load_json(line.decode("utf-8"))
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("step"), int) else None


def _rounded(value: float) -> float | int | None:
    if isinstance(value, int):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None
