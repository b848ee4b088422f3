"""`log.jsonl` of a run. It is cut at the step from which a run resumes, so that it has no step twice."""

from __future__ import annotations

import json
from pathlib import Path

from cerberank_models.checkpoint.atomic import write_bytes


def cut_log(path: Path, step: int) -> None:
    """Remove the lines of steps after `step`, and the incomplete line of a killed process."""
    if not path.is_file():
        return
    lines = path.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if _step(line) <= step]
    if len(kept) < len(lines):
        write_bytes(path, b"".join(kept))


def last_step(path: Path) -> int:
    """The last step of the log; 0 if there is no log."""
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    return max((int(step) for step in map(_step, lines) if step != float("inf")), default=0)


def dev_at_start(path: Path) -> float | None:
    """The figure on dev before the first step; None if the log has none, such as the log of an earlier version."""
    for line in path.read_bytes().splitlines(keepends=True) if path.is_file() else ():
        if _step(line) == 0:
            value: float | None = json.loads(line).get("dev_map")
            return value
    return None


def _step(line: bytes) -> float:
    """The step of a line; infinity for an incomplete line."""
    if not line.endswith(b"\n"):
        return float("inf")
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
