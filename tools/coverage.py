"""Compares line coverage by package with recorded figures: `python -m tools.coverage`, after tests with `COVERAGE=yes`.

The exit code is 1 if the coverage of a package has fallen by more than a point. `--record` writes the new figures, to
be committed. Lines that run only in other processes, such as a service that an end-to-end test starts, do not count.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tools.process import ROOT

MEASURED = ROOT / ".coverage.json"
"""The file that SlipCover writes in `make test-all COVERAGE=yes`."""

RECORDED = ROOT / "tests" / "coverage.json"
MOST_FALL = 1.0
"""Allowed fall in points. Tests are skipped on machines without some programs, and races may take other branches."""


def by_package(files: Mapping[str, tuple[int, int]]) -> dict[str, float]:
    """Percentage of statements that ran, by package; `files` has the number of run and of all statements by path."""
    ran, all_ = Counter[str](), Counter[str]()
    for path, (covered, statements) in files.items():
        package = next(part for part in Path(path).parts if part.startswith("cerberank"))
        ran[package] += covered
        all_[package] += statements
    return {package: round(100.0 * ran[package] / all_[package], 1) for package in sorted(all_)}


def fallen(measured: Mapping[str, float], recorded: Mapping[str, float]) -> list[str]:
    """The packages that are missing or whose coverage has fallen by more than a point."""
    return [name for name, percent in recorded.items() if measured.get(name, 0.0) < percent - MOST_FALL]


def measure() -> dict[str, float]:
    """The figures of the last run of the tests. Raises FileNotFoundError if there was none."""
    files = json.loads(MEASURED.read_text())["files"]
    lines = {path: (len(each["executed_lines"]), len(each["missing_lines"])) for path, each in files.items()}
    return by_package({path: (ran, ran + missed) for path, (ran, missed) in lines.items()})


def main(argv: list[str]) -> int:
    """Print the figures; returns 1 if one has fallen."""
    parser = argparse.ArgumentParser(prog="python -m tools.coverage", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the figures instead of comparing them")
    record, measured = parser.parse_args(argv).record, measure()
    if record:
        RECORDED.write_text(json.dumps(measured, indent=2) + "\n")
    recorded: dict[str, float] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    for name, percent in measured.items():
        sys.stdout.write(f"{name:24} {percent:5.1f} % of lines, recorded {recorded.get(name, 'nothing')}\n")
    lost = fallen(measured, recorded)
    if lost:
        sys.stdout.write(f"fallen by more than {MOST_FALL:g} point: {', '.join(lost)}\n")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
