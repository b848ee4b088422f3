"""`cerberank train runs`: the training runs below a folder."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path

from cerberank_models.output import say
from cerberank_training.tracking.run_list import RunRow, run_rows

HEADER = ("folder", "name", "recipe", "base", "data", "steps", "best MAP", "dev set", "seed", "state", "age")
UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))
LONGEST = 40
"""Characters of a cell; --json has all."""


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
