"""`cerberank train runs FOLDER`: the training runs below a folder in one table, the ones that ended and the others."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from cerberank_training.tracking.rows import RunRow, run_rows

HEADER = ("folder", "name", "recipe", "base", "data", "steps", "best MAP", "dev set", "seed", "state", "age")
UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))
LONGEST = 40
"""Characters of a cell; --json has all."""


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    parser = argparse.ArgumentParser(prog="cerberank train runs", description=__doc__, allow_abbrev=False)
    parser.add_argument("folder", type=Path, help="a folder with runs, however deep")
    parser.add_argument("--json", action="store_true", help="print a JSON list, with ages in seconds")
    arguments = parser.parse_args(argv)
    try:
        rows = run_rows(arguments.folder)
    except OSError as error:
        said = "there is no such folder" if isinstance(error, FileNotFoundError) else error.strerror
        print(f"cerberank train runs: {error.filename or arguments.folder}: {said}", file=sys.stderr)  # noqa: T201
        return 1
    if not rows and not arguments.json:
        print(f"cerberank train runs: no run is in or below {arguments.folder}", file=sys.stderr)  # noqa: T201
        return 1
    print(json.dumps([asdict(row) for row in rows], indent=2) if arguments.json else _table(rows))  # noqa: T201
    return 0


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
        *(row.folder, row.name, row.recipe or row.verb, base, data, f"{_said(row.steps)}/{_said(row.of)}"),
        *(None if row.best is None else f"{row.best:.2f}", dev, row.seed, row.state, age(row.age)),
    )
    return tuple(_cut(_said(value)) for value in values)


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


def _said(value: object) -> str:
    return "-" if value is None else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
