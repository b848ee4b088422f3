"""Measures the time that Ray Serve adds to a request, in milliseconds: `python -m tools.ray_overhead`.

One client sends requests in turn to uvicorn and to Ray Serve, both with the bundled checkpoint, one thread and one
replica. The question is small, so that mainly the time outside of the model is measured.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np

from cerberank_models.checkpoint.bundled import default_checkpoint
from tools.process import start, wait_until_ready
from tools.ray_cluster import run_on_ray

ROUNDS = 500
WARM_UP = 50
BODY = {"question": "Who drew the map of the London Underground?", "candidates": ["Harry Beck drew the map."]}


def main(folder: Path) -> None:
    """Print a table with the client's time and the service's own time, by server."""
    plain = start(default_checkpoint(), folder / "plain.log", CERBERANK_THREADS="1")
    try:
        wait_until_ready(plain)
        with run_on_ray(folder, autoscaling={"min_replicas": 1, "max_replicas": 1}) as on_ray:
            urls = {"uvicorn": plain.url, "Ray Serve": on_ray.url}
            seen: dict[str, list[tuple[float, float]]] = {name: [] for name in urls}
            with httpx.Client(timeout=60.0) as client:
                for _ in range(WARM_UP + ROUNDS):
                    for name, url in urls.items():
                        seen[name].append(_ask(client, url))
    finally:
        plain.process.kill()
        plain.process.wait()
    print_table({name: np.array(times[WARM_UP:]) for name, times in seen.items()})


def _ask(client: httpx.Client, url: str) -> tuple[float, float]:
    """Milliseconds measured by the client, and by the service."""
    began = time.perf_counter()
    answer = client.post(f"{url}/v1/rank", json=BODY).raise_for_status()
    return 1000.0 * (time.perf_counter() - began), answer.json()["timing_ms"]["total"]


def print_table(times: dict[str, np.ndarray]) -> None:
    """Print medians and 95th percentiles; "the way" is the client's time minus the service's time."""
    write = sys.stdout.write
    write("| server | client p50 | client p95 | service p50 | the way p50 |\n|---|---|---|---|---|\n")
    for name, found in times.items():
        outside, inside = found.T
        low, high = np.percentile(outside, (50, 95))
        write(f"| {name} | {low:.2f} | {high:.2f} | {np.median(inside):.2f} | {np.median(outside - inside):.2f} |\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
