"""Compares the seconds of each test file with recorded figures: `python -m tools.durations`, after `make test-all`.

A run of the tests writes the seconds below pytest's cache. Machines differ, so that recorded figures are multiplied by
how much longer the median file takes now. `--record` writes the new figures, to be committed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from statistics import median

from tools.process import ROOT

MEASURED = ROOT / ".pytest_cache" / "v" / "durations" / "seconds"
RECORDED = ROOT / "tests" / "durations.json"
LEAST = 2.0
"""Seconds of a file that is recorded, and of a growth that is named."""


def grown(measured: Mapping[str, float], recorded: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Files that take half as long again, and LEAST more, with the recorded seconds at this machine's speed and now."""
    speed = median([measured[name] / recorded[name] for name in measured.keys() & recorded.keys()] or [1.0])
    compared = {name: (recorded.get(name, 0.0) * speed, now) for name, now in measured.items()}
    return {name: (old, now) for name, (old, now) in compared.items() if now > max(1.5 * old, old + LEAST)}


def main(argv: list[str]) -> int:
    """Print the files that have grown, the dearest first."""
    parser = argparse.ArgumentParser(prog="python -m tools.durations", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the figures instead of comparing them")
    record, measured = parser.parse_args(argv).record, json.loads(MEASURED.read_text())
    recorded: dict[str, float] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    for name, (old, now) in sorted(grown(measured, recorded).items(), key=lambda each: -each[1][1]):
        sys.stdout.write(f"{now:6.1f} s, recorded {old:6.1f} s: {name}\n")
    if record:
        dear = {name: round(now, 1) for name, now in sorted(measured.items()) if now >= LEAST}
        RECORDED.write_text(json.dumps(dear, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
