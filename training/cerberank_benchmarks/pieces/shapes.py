"""Measures the cost of 3 heads relative to 1 at equal depth, and the time of a cascade relative to its layers run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from cerberank_benchmarks.report import Chart, Report, Value, bars
from cerberank_benchmarks.rounds import median_seconds
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_benchmarks.weights import made
from cerberank_benchmarks.workload import Workload
from cerberank_models.backends.registry import open_backend
from cerberank_models.drop import relative_cost
from cerberank_models.rank import rank_pairs

RATIOS = (0.0, 0.3, 0.5)
CASCADE_LAYERS, CASCADE_EXITS = 12, (4, 6, 8, 10, 12)
"""The shape of the Cascade Transformer: four exits that drop candidates, and a last exit."""


def heads(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per number of candidates, with 1 and 3 heads of one layer on bodies of the same shape."""
    shapes = {count: made(settings, scratch, f"heads-{count}", layers=settings.layers, heads=count) for count in (1, 3)}
    backends = {count: open_backend(shape, precision=settings.precision) for count, shape in shapes.items()}
    rows: list[dict[str, Value]] = []
    workload = Workload(settings)
    for candidates in settings.candidates:
        task = workload.task(candidates)
        pairs = shapes[1].encoder().encode(task.question, task.candidates)
        runs: dict[str, Callable[[], Any]] = {
            str(count): partial(rank_pairs, backend, pairs) for count, backend in backends.items()
        }
        for run in runs.values():
            run()
        seconds = median_seconds(runs, rounds=settings.rounds, label=f"heads, {candidates} candidates")
        rows.append(
            {
                "candidates": candidates,
                "tokens": pairs.tokens,
                "1 head, seconds": seconds["1"],
                "3 heads, seconds": seconds["3"],
                "ratio": seconds["3"] / seconds["1"],
            }
        )
    names = ("1 head, seconds", "3 heads, seconds")
    return Report(
        name="heads",
        text=f"B{settings.layers - 1} 3H1 against B{settings.layers - 1} 1H1 in ONNX {settings.precision}, width "
        f"{settings.width}, without tokenising (the paper pays 1.30x).",
        rows=rows,
        chart=bars(rows, "candidates", names, value_label="seconds"),
    )


def cascade(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per number of candidates and drop ratio."""
    checkpoint = made(settings, scratch, "cascade", layers=CASCADE_LAYERS, heads=0, exits=CASCADE_EXITS)
    backend = open_backend(checkpoint, precision=settings.precision)
    drops = len(CASCADE_EXITS) - 1
    rows: list[dict[str, Value]] = []
    workload = Workload(settings)
    for candidates in settings.candidates:
        task = workload.task(candidates)
        pairs = checkpoint.encoder().encode(task.question, task.candidates)
        runs: dict[str, Callable[[], Any]] = {
            str(alpha): partial(rank_pairs, backend, pairs, backend.config.drop_policy(alpha)) for alpha in RATIOS
        }
        for run in runs.values():
            run()
        seconds = median_seconds(runs, rounds=settings.rounds, label=f"cascade, {candidates} candidates")
        rows += [
            {
                "candidates": candidates,
                "drop ratio": alpha,
                "seconds": seconds[str(alpha)],
                "ratio": seconds[str(alpha)] / seconds["0.0"],
                "op count": relative_cost(checkpoint.config.stage_layers, (alpha,) * drops),
            }
            for alpha in RATIOS
        ]
    measured = {
        f"{candidates} candidates": [float(row["ratio"]) for row in rows if row["candidates"] == candidates]
        for candidates in settings.candidates
    }
    return Report(
        name="cascade",
        text=f"{CASCADE_LAYERS} layers, exits after {', '.join(map(str, CASCADE_EXITS))}, ONNX {settings.precision}, "
        f"width {settings.width}: time relative to dropping nothing, beside the count of layers run.",
        rows=rows,
        chart=Chart(
            kind="lines",
            places=RATIOS,
            series=measured | {"op count": [float(row["op count"]) for row in rows[: len(RATIOS)]]},
            place_label="drop ratio of every exit",
            value_label="time, relative to dropping nothing",
        ),
    )
