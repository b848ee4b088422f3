"""`log.jsonl` of a run: cut back to the state that the run goes on from, so that no step is in it twice."""

from __future__ import annotations

import json
from pathlib import Path

from cerberank_models.checkpoint.atomic import write_bytes


def cut_log(path: Path, step: int) -> None:
    """Remove the lines of steps after `step`, and a line that a killed process has not finished."""
    if not path.is_file():
        return
    lines = path.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if _step(line) <= step]
    if len(kept) < len(lines):
        write_bytes(path, b"".join(kept))


def last_step(path: Path) -> int:
    """The last step of the log; 0 without one."""
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    return max((int(step) for step in map(_step, lines) if step != float("inf")), default=0)


def dev_at_start(path: Path) -> float | None:
    """The figure on dev before the first step; None where the log of an earlier version has none."""
    for line in path.read_bytes().splitlines(keepends=True) if path.is_file() else ():
        if _step(line) == 0:
            value: float | None = json.loads(line).get("dev_map")
            return value
    return None


def _step(line: bytes) -> float:
    """The step of a line; infinity for one that was not finished."""
    if not line.endswith(b"\n"):
        return float("inf")
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
