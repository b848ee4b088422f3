"""Measures how well the hardware is used.

Compares the operation rate of the torch backend with that of square matrix products on the same cores, and measures the
share of padding in the ONNX backend's length buckets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from cerberank_benchmarks.machine import multiplies_bf16
from cerberank_benchmarks.report import Chart, Report, Value
from cerberank_benchmarks.rounds import median_seconds
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_benchmarks.weights import made
from cerberank_benchmarks.workload import Workload
from cerberank_models.backends.onnx_backend import OnnxBackend
from cerberank_models.backends.processors import usable_processors
from cerberank_models.backends.registry import open_backend
from cerberank_models.backends.torch_backend import TorchBackend, load_ranker
from cerberank_models.backends.torch_stages import PRECISIONS
from cerberank_models.config import RankerConfig
from cerberank_models.encoding import EncodedPairs
from cerberank_models.rank import rank_pairs

PRODUCTS, SIDE = 4, 2048


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per number of candidates and precision."""
    checkpoint = made(settings, scratch, "efficiency", layers=settings.layers, heads=1)
    onnx = open_backend(checkpoint, precision=settings.precision)
    assert isinstance(onnx, OnnxBackend), "the default backend"
    torch.set_num_threads(usable_processors())
    rows: list[dict[str, Value]] = []
    workload = Workload(settings)
    for precision in ["fp32", "bf16"] if multiplies_bf16() else ["fp32"]:
        backend = TorchBackend(load_ranker(checkpoint), precision=precision)
        for candidates in settings.candidates:
            task = workload.task(candidates)
            pairs = checkpoint.encoder().encode(task.question, task.candidates)
            rows.append(_row(precision, pairs, backend, onnx, settings))
    return Report(
        name="efficiency",
        text=f"B{settings.layers - 1} 1H1 of width {settings.width} on the torch path: its operations per second, "
        f"those of products of {SIDE} x {SIDE} matrices, in turns; padding of the ONNX path's buckets.",
        rows=rows,
        chart=Chart(
            kind="bars",
            places=[f"{row['precision']}, {row['candidates']}" for row in rows],
            series={name: [float(row[name]) for row in rows] for name in ("GFLOP/s", "matmul GFLOP/s")},
            place_label="precision, candidates",
            value_label="GFLOP/s",
        ),
    )


def operations(config: RankerConfig, lengths: np.ndarray[Any, Any]) -> float:
    """Floating-point operations of a question's linear layers and attention, without padding."""
    width, maps = config.body.hidden_size, config.body.feed_forward_maps
    feed = maps * width * config.body.intermediate_size
    tokens, pairs, squares = float(lengths.sum()), len(lengths), float((lengths**2).sum())
    layer = 2 * tokens * (4 * width**2 + feed) + 4 * squares * width
    last = 2 * tokens * 2 * width**2 + 2 * pairs * (2 * width**2 + feed) + 4 * tokens * width
    heads, depth = config.architecture.heads, config.architecture.head_layers
    return layer * (config.architecture.body_layers + heads * max(depth - 1, 0)) + (heads * last if depth else 0.0)


def _row(
    precision: str, pairs: EncodedPairs, backend: TorchBackend, onnx: OnnxBackend, settings: BenchmarkSettings
) -> dict[str, Value]:
    left, right = (torch.randn(SIDE, SIDE, dtype=PRECISIONS[precision]) for _ in range(2))

    @torch.inference_mode()
    def products() -> None:
        for _ in range(PRODUCTS):
            torch.nn.functional.linear(left, right)

    runs = {"torch": lambda: rank_pairs(backend, pairs), "products": products}
    for warm_up in runs.values():
        warm_up()
    seconds = median_seconds(runs, rounds=settings.rounds, label=f"{precision}, {len(pairs)} candidates")
    before = onnx.counts.padding_tokens
    rank_pairs(onnx, pairs)
    padding = onnx.counts.padding_tokens - before
    rate = operations(backend.config, pairs.lengths) / seconds["torch"] / 1e9
    peak = PRODUCTS * 2 * SIDE**3 / seconds["products"] / 1e9
    return {
        "precision": precision,
        "candidates": len(pairs),
        "tokens": pairs.tokens,
        "seconds": seconds["torch"],
        "tokens/s": pairs.tokens / seconds["torch"],
        "GFLOP/s": rate,
        "matmul GFLOP/s": peak,
        "share": rate / peak,
        "padding share (ONNX)": padding / (padding + pairs.tokens),
    }
