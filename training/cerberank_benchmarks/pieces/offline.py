"""Compares ranking without HTTP with `sentence_transformers.CrossEncoder`, with the same weights and pairs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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
from cerberank_models.backends.processors import usable_processors
from cerberank_models.backends.registry import open_backend
from cerberank_models.backends.stage_contract import Backend
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.encoding import PairEncoder
from cerberank_models.rank_pairs import rank_pairs

PEER = "CrossEncoder"
HALF_PEER = "CrossEncoder bf16"
INFINITY, HALF_INFINITY = "infinity", "infinity bf16"
EQUAL = {
    **dict.fromkeys(("fp32", "torch fp32", INFINITY), 0.0001),
    **dict.fromkeys(("int8", "torch bf16", HALF_PEER, HALF_INFINITY), 0.1),
}
"""Largest difference in probability that counts as an equal result."""


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per number of candidates and system: median seconds of a question, with tokenising."""
    source = cross_encoder(settings, scratch)
    checkpoint = imported(source, scratch)
    peers = cross_encoders(source)
    encoder = checkpoint.encoder()
    backends = {name: open_backend(checkpoint, precision=name) for name in ("fp32", "int8")}
    backends["torch fp32"] = open_backend(checkpoint, kind="torch", precision="fp32")
    if HALF_PEER in peers:
        backends["torch bf16"] = open_backend(checkpoint, kind="torch", precision="bf16")
    rows: list[dict[str, Value]] = []
    workload = Workload(settings)
    for count in settings.candidates:
        task = workload.task(count)
        runs: dict[str, Callable[[], NDArray[Any]]] = {
            name: partial(predicted, peer, task) for name, peer in peers.items()
        }
        runs |= {name: partial(_ranked, encoder, backend, task) for name, backend in backends.items()}
        scores = {name: np.asarray(run()) for name, run in runs.items()}  # also the warm-up
        seconds = median_seconds(runs, rounds=settings.rounds, label=f"{count} candidates")
        rows += compared(count, tokens_of(checkpoint, task), seconds, scores, peers=peers)
    return Report(
        name="offline",
        text="One question in one process, tokenising included: median seconds, times faster than CrossEncoder in fp32 "
        "(`ratio`), and than the fastest of the peers in this table (`to the best peer`).",
        rows=rows,
        chart=speed_chart(rows),
        problems=differing(rows),
    )


def cross_encoders(source: Path) -> dict[str, CrossEncoder]:
    """The peer in fp32 and, if the processor has products in bf16, in bf16, which is its fastest simple option."""
    peers = {PEER: CrossEncoder(str(source), max_length=MAX_LENGTH, device="cpu")}
    if multiplies_bf16():
        half = {"dtype": torch.bfloat16}
        peers[HALF_PEER] = CrossEncoder(str(source), max_length=MAX_LENGTH, device="cpu", model_kwargs=half)
    return peers


def tokens_of(checkpoint: Checkpoint, task: Task) -> int:
    """The tokens of all pairs of a question, without padding."""
    return int(checkpoint.encoder().encode(task.question, task.candidates).lengths.sum())


def predicted(peer: Any, task: Task) -> NDArray[Any]:
    """The peer's probabilities."""
    return np.asarray(peer.predict([(task.question, text) for text in task.texts], show_progress_bar=False))


def compared(
    count: int,
    tokens: int,
    seconds: Mapping[str, float],
    scores: Mapping[str, NDArray[Any]],
    *,
    peers: Collection[str],
) -> list[dict[str, Value]]:
    """A row for each entry of `seconds`: speed, ratios to the peers, and largest difference from PEER's scores.

    Tokens per second and core allow comparisons with published figures for pairs of other lengths.
    """
    best = min(seconds[name] for name in peers)
    return [
        {
            "candidates": count,
            "by": name,
            "seconds": value,
            "candidates/s": count / value,
            "tokens/s a core": tokens / value / usable_processors(),
            "ratio": seconds[PEER] / value,
            "to the best peer": best / value,
            "largest difference": float(np.abs(scores[name] - scores[PEER]).max()),
        }
        for name, value in seconds.items()
    ]


def differing(rows: Sequence[Mapping[str, Value]]) -> list[str]:
    """The problems of a report: rows whose scores differ by more than their precision allows."""
    return [
        f"{row['candidates']} candidates, {row['by']}: scores differ by {row['largest difference']:.2g}"
        for row in rows
        if float(row["largest difference"]) > EQUAL.get(str(row["by"]), np.inf)
    ]


def speed_chart(rows: list[dict[str, Value]]) -> Chart:
    """A chart of candidates per second by number of candidates."""
    names = list(dict.fromkeys(str(row["by"]) for row in rows))
    return Chart(
        places=list(dict.fromkeys(row["candidates"] for row in rows)),
        series={name: [float(row["candidates/s"]) for row in rows if row["by"] == name] for name in names},
        place_label="candidates of a question",
        value_label="candidates per second",
    )


def _ranked(encoder: PairEncoder, backend: Backend[Any], task: Task) -> NDArray[Any]:
    return rank_pairs(backend, encoder.encode(task.question, task.candidates)).scores
