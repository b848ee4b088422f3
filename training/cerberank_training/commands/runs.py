"""`cerberank train runs`: the training runs below a folder, read from their files, which may be missing or damaged."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import Any, Literal

from cerberank_models.checkpoint.regular import read_regular
from cerberank_models.json_lines import load_json
from cerberank_models.output import say
from cerberank_training.runs.folder import LOCK, is_running
from cerberank_training.runs.record import LARGEST, RECORD
from cerberank_training.runs.tracking.log_file import LOG, read_log

State = Literal["running", "finished", "killed"]
HEADER = ("folder", "name", "recipe", "base", "data", "steps", "best MAP", "dev set", "seed", "state", "age")
UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))
LONGEST = 40
"""Characters of a cell; --json has all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRow:
    """One run. A field is None if the run's files do not tell it."""

    folder: str
    """The path relative to the listed folder."""
    name: str
    verb: str | None
    recipe: str | None
    base: str | None
    data: str | None
    steps: int | None
    """The number of steps that are done."""
    of: int | None
    """The number of steps that were asked for; a run that patience has ended has fewer."""
    dev: str | None
    """The data set that chose the weights. The best figures of runs with different sets cannot be compared."""
    best: float | None
    """The best figure on the set `dev`, in percent."""
    seed: int | None
    state: State
    """`killed` if no process trains in the folder, and its record has no results or their file is missing."""
    age: float
    """Seconds since the run last wrote a file."""


def runs(folder: Path, /, *, json: bool = False) -> list[RunRow]:
    """Show the training runs below a folder, finished or not.

    Args:
        folder: Folder with runs, at any depth.
        json: JSON list, with ages in seconds.
    """
    try:
        rows = run_rows(folder)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error.filename or folder}: there is no such folder") from error
    if not rows and not json:
        raise FileNotFoundError(f"no run is in or below {folder}")
    say(dumps([asdict(row) for row in rows], indent=2) if json else _table(rows))
    return rows


def _table(rows: list[RunRow]) -> str:
    cells = [HEADER, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADER))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def _cells(row: RunRow) -> tuple[str, ...]:
    data, dev = (None if text is None else _short(text) for text in (row.data, row.dev))
    base = None if row.base is None else Path(row.base).name
    values = (
        *(row.folder, row.name, row.recipe or row.verb, base, data, f"{_shown(row.steps)}/{_shown(row.of)}"),
        *(None if row.best is None else f"{row.best:.2f}", dev, row.seed, row.state, age(row.age)),
    )
    return tuple(_cut(_shown(value)) for value in values)


def age(seconds: float) -> str:
    """An age in its largest unit.

    >>> [age(seconds) for seconds in (5, 150, 7300, 200_000)]
    ['5 s', '2 min', '2 h', '2 d']
    """
    for size, unit in UNITS:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _short(spec: str) -> str:
    """`FORMAT:PATH` with the path's last part alone."""
    form, colon, path = spec.partition(":")
    return f"{form}:{Path(path).name}" if colon else spec


def _shown(value: object) -> str:
    return "-" if value is None else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def run_rows(folder: Path) -> list[RunRow]:
    """All runs in and below `folder`; the run that wrote most recently comes first."""
    now = time.time()
    return sorted((_row(run, folder, now) for run in _runs(folder)), key=lambda row: (row.age, row.folder))


def _runs(folder: Path) -> Iterator[Path]:
    """The folders of runs. Folders inside of a run are not searched."""
    if (folder / LOG).is_file() or (folder / LOCK).is_file() or (folder / RECORD).is_file():
        yield folder
        return
    for inner in sorted(folder.iterdir()):
        if inner.is_dir() and not inner.name.startswith(".") and not inner.is_symlink():
            yield from _runs(inner)


def _row(run: Path, below: Path, now: float) -> RunRow:
    # Any of these files may be missing; their parts are then empty.
    record, log = _json(run / RECORD), read_log(run / LOG)
    free, bound, results = _part(record, "free"), _part(record, "bound"), _part(record, "results")
    names, settings, result = _part(free, "names"), _part(bound, "settings"), _text(record.get("result"))
    train, is_finished = _part(settings, "train"), bool(results)
    files = [path for path in run.iterdir() if path.name in (LOG, RECORD, result) and path.exists()]
    is_finished &= any(path.name == (result or RECORD) for path in files)
    config = _json(run / "checkpoint" / "config.json")
    steps = max((line["step"] for line in log), default=_number(results.get("reached")))
    last_step = _number(bound.get("steps"))
    # Figures before the end of the warm start did not choose the weights.
    final_only = _number(train.get("final_only")) or 0.0
    warm_start = final_only * (last_step or 0)
    counted = [
        _number(value)
        for line in log
        if line["step"] > (0 if final_only >= 1 else warm_start)
        for name, value in line.items()
        if name.startswith("dev") and "/" not in name
    ]
    # The record of a finished run has its best figure.
    figures = [float(value) for value in counted if value is not None]
    best = _number(results.get("best"))
    state: State = "running" if is_running(run) else "finished" if is_finished else "killed"
    return RunRow(
        folder=str(run.relative_to(below)),
        name=str(config.get("name") or run.resolve().name),
        verb=_text(record.get("verb")),
        recipe=_text(free.get("recipe")),
        base=_text(names.get("base")),
        data=_text(_first(names.get("groups"), names.get("train"))),
        steps=steps,
        of=last_step,
        dev=_text(names.get("dev")),
        best=max(figures, default=None) if best is None else best,
        seed=_first(_number(train.get("seed")), _number(settings.get("seed"))),
        state=state,
        age=max(0.0, now - max((path.stat().st_mtime for path in files), default=run.stat().st_mtime)),
    )


def _json(path: Path) -> dict[str, Any]:
    """The object in a file; an empty one for a file that is missing, too large or no JSON object."""
    try:
        value = load_json(read_regular(path, LARGEST).decode("utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _part(record: dict[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> Any:
    """The value if it is a number, else None."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _text(value: Any) -> str | None:
    return None if value is None or isinstance(value, dict | list) else str(value)
