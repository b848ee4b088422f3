"""Measures ranking without HTTP against `sentence_transformers.CrossEncoder`: same weights, pairs and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder

from cerberank_benchmarks.machine import multiplies_bf16
from cerberank_benchmarks.report import Chart, Report, Value
from cerberank_benchmarks.rounds import median_seconds
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_benchmarks.weights import MAX_LENGTH, cross_encoder, imported
from cerberank_benchmarks.workload import Task, Workload
from cerberank_models.backends.contract import Backend
from cerberank_models.backends.registry import open_backend
from cerberank_models.encoding import PairEncoder
from cerberank_models.rank import rank_pairs

PEER = "CrossEncoder"
HALF_PEER = "CrossEncoder bf16"
EQUAL = {"fp32": 1e-4, "torch fp32": 1e-4, "int8": 0.1, "torch bf16": 0.1, HALF_PEER: 0.1}
"""Largest difference in probability that still counts as the same result."""


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per number of candidates and form: median seconds of a question, tokenising included.

    Where the processor multiplies bf16, the peer and the torch backend run in it too: the best peer there counts.
    """
    source = cross_encoder(settings, scratch)
    checkpoint = imported(source, scratch)
    peers = {PEER: CrossEncoder(str(source), max_length=MAX_LENGTH, device="cpu")}
    encoder = checkpoint.encoder()
    backends = {name: open_backend(checkpoint, precision=name) for name in ("fp32", "int8")}
    backends["torch fp32"] = open_backend(checkpoint, kind="torch", precision="fp32")
    if multiplies_bf16():
        half = {"dtype": torch.bfloat16}
        peers[HALF_PEER] = CrossEncoder(str(source), max_length=MAX_LENGTH, device="cpu", model_kwargs=half)
        backends["torch bf16"] = open_backend(checkpoint, kind="torch", precision="bf16")
    rows: list[dict[str, Value]] = []
    problems: list[str] = []
    workload = Workload(settings)
    for count in settings.candidates:
        task = workload.task(count)
        runs: dict[str, Callable[[], NDArray[Any]]] = {
            name: partial(predicted, peer, task) for name, peer in peers.items()
        }
        runs |= {name: partial(_ranked, encoder, backend, task) for name, backend in backends.items()}
        scores = {name: np.asarray(run()) for name, run in runs.items()}  # also the warm-up
        seconds = median_seconds(runs, rounds=settings.rounds, label=f"{count} candidates")
        rows += compared(count, seconds, scores)
    problems += [
        f"{row['candidates']} candidates, {row['by']}: scores differ by {row['largest difference']:.2g}"
        for row in rows
        if float(row["largest difference"]) > EQUAL.get(str(row["by"]), np.inf)
    ]
    return Report(
        name="offline",
        text="One question in one process, tokenising included: median seconds, and times faster than CrossEncoder.",
        rows=rows,
        chart=speed_chart(rows),
        problems=problems,
    )


def predicted(peer: Any, task: Task) -> NDArray[Any]:
    """The probabilities that the peer predicts."""
    return np.asarray(peer.predict([(task.question, text) for text in task.texts], show_progress_bar=False))


def compared(
    count: int, seconds: Mapping[str, float], scores: Mapping[str, NDArray[Any]], *, peer: str = PEER
) -> list[dict[str, Value]]:
    """A row for each entry of `seconds`: speed, ratio to `peer` and largest difference from its scores."""
    return [
        {
            "candidates": count,
            "by": name,
            "seconds": value,
            "candidates/s": count / value,
            "ratio": seconds[peer] / value,
            "largest difference": float(np.abs(scores[name] - scores[peer]).max()),
        }
        for name, value in seconds.items()
    ]


def speed_chart(rows: list[dict[str, Value]]) -> Chart:
    """Candidates per second by number of candidates."""
    names = list(dict.fromkeys(str(row["by"]) for row in rows))
    return Chart(
        kind="bars",
        places=list(dict.fromkeys(row["candidates"] for row in rows)),
        series={name: [float(row["candidates/s"]) for row in rows if row["by"] == name] for name in names},
        place_label="candidates of a question",
        value_label="candidates per second",
    )


def _ranked(encoder: PairEncoder, backend: Backend[Any], task: Task) -> NDArray[Any]:
    return rank_pairs(backend, encoder.encode(task.question, task.candidates)).scores
