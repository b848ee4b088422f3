"""Times compared functions in turn, so that noise of the machine affects all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

from cerberank_models.progress import progress


def median_seconds(runs: Mapping[str, Callable[[], object]], *, rounds: int, label: str) -> dict[str, float]:
    """Median seconds of each function. A round runs every function once; the caller warms up before."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in progress(range(rounds), desc=label):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}
