"""`cerberank train runs`: the training runs below a folder, read from their files, which may be missing or damaged."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from json import dumps, loads
from pathlib import Path
from typing import Literal

from cerberank_models.output import say
from cerberank_training.runs.folder import LOCK, is_running
from cerberank_training.runs.record import RECORD, RunError, read_record
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
    # A record that cannot be read, such as that of an earlier version, is none. The log may be missing too.
    try:
        record = read_record(run)
    except RunError:
        record = None
    log = read_log(run / LOG)
    bound, free, results = ({}, {}, {}) if record is None else (record.bound, record.free, record.results)
    names, settings = free.get("names", {}), bound.get("settings", {})
    train, last_step = settings.get("train", settings), bound.get("steps")
    # Figures before the end of the warm start did not choose the weights.
    final_only = train.get("final_only") or 0.0
    warm_start = final_only * (last_step or 0)
    figures = [
        value
        for line in log
        if line["step"] > (0 if final_only >= 1 else warm_start)
        for name, value in line.items()
        if name.startswith("dev") and "/" not in name and value is not None
    ]
    best = results.get("best")  # of a finished run
    finished = record is not None and bool(results) and (run / record.result).exists()
    files = [run / name for name in (LOG, RECORD, record.result if record else "") if name and (run / name).exists()]
    return RunRow(
        folder=str(run.relative_to(below)),
        name=_name(run),
        verb=record.verb if record else None,
        recipe=free.get("recipe"),
        base=names.get("base"),
        data=names.get("groups") or names.get("train"),
        steps=max((line["step"] for line in log), default=results.get("reached")),
        of=last_step,
        dev=names.get("dev"),
        best=max(figures, default=None) if best is None else best,
        seed=train.get("seed"),
        state="running" if is_running(run) else "finished" if finished else "killed",
        age=max(0.0, now - max((path.stat().st_mtime for path in files), default=run.stat().st_mtime)),
    )


def _name(run: Path) -> str:
    """The name of the run's checkpoint, or that of its folder before there is one."""
    try:
        return str(loads((run / "checkpoint" / "config.json").read_bytes())["name"])
    except (OSError, ValueError, KeyError):
        return run.resolve().name
