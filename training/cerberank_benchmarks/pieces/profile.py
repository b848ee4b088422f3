"""Measures the time of a question by operator on this processor.

The times are from ONNX Runtime's profile of the graphs, PyTorch's profile of the torch backend and, if it is installed,
OpenVINO's profile of the int8 graph.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cerberank_benchmarks.machine import multiplies_bf16
from cerberank_benchmarks.pieces.openvino import operator_seconds as openvino_seconds
from cerberank_benchmarks.report import Chart, Report, Value
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_benchmarks.weights import cross_encoder, imported
from cerberank_benchmarks.workload import Workload
from cerberank_models.backends.batching import BucketRule, buckets_of
from cerberank_models.backends.onnx_backend import padded_ids
from cerberank_models.backends.onnx_session import open_session
from cerberank_models.backends.torch_backend import TorchBackend, load_ranker
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.encoding import EncodedPairs, packed_rows
from cerberank_models.rank import rank_pairs

LISTED = 10
"""Number of operators with a row of their own; the others are summed up."""


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per form and operator: milliseconds of one thread for one question, and their share of the total."""
    checkpoint = imported(cross_encoder(settings, scratch), scratch)
    task = Workload(settings).task(settings.candidates[0])
    pairs = checkpoint.encoder().encode(task.question, task.candidates)
    precision = "bf16" if multiplies_bf16() else "fp32"
    batches = _batches(pairs)
    forms = {f"onnx {name}": _onnx(checkpoint, name, batches, settings.rounds, scratch) for name in ("int8", "fp32")}
    forms[f"torch {precision}"] = _torch(checkpoint, precision, pairs, settings.rounds)
    if find_spec("openvino") is not None:
        (graph,) = checkpoint.stage_graphs("int8")
        forms["openvino int8"] = openvino_seconds(graph, batches, settings.rounds)
    rows = [row for form, spent in forms.items() for row in _rows(form, spent)]
    return Report(
        name="profile",
        text=f"{settings.layers} layers of width {settings.width}, a question of {len(pairs)} pairs and {pairs.tokens} "
        f"tokens, one thread, the service's batches and session options; means of {settings.rounds} runs.",
        rows=rows,
        chart=Chart(
            kind="bars",
            places=list(forms),
            series={
                name: [spent[name] / spent.total() for spent in forms.values()]
                for name in dict.fromkeys(str(row["operator"]) for row in rows)
            },
            place_label="form",
            value_label="share of the time",
        ),
    )


def operator_seconds(profile: Path) -> Counter[str]:
    """Seconds by type of operator in a profile of ONNX Runtime."""
    spent: Counter[str] = Counter()
    for event in json.loads(profile.read_text(encoding="utf-8")):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            spent[event["args"]["op_name"]] += event["dur"] / 1e6
    return spent


def _batches(pairs: EncodedPairs) -> list[dict[str, NDArray[Any]]]:
    """The inputs of a graph, in the service's batches."""
    batches = []
    for rows in buckets_of(pairs.lengths, BucketRule(), 1):
        mask = np.arange(int(pairs.lengths[rows].max()))[None, :] < pairs.lengths[rows][:, None]
        batches.append(padded_ids(pairs, packed_rows(pairs.offsets, rows)[0], mask))
    return batches


def _onnx(
    checkpoint: Checkpoint, precision: str, batches: Sequence[dict[str, NDArray[Any]]], rounds: int, scratch: Path
) -> Counter[str]:
    (graph,) = checkpoint.stage_graphs(precision)
    warm_up = open_session(graph, threads=1, device="cpu")
    for batch in batches:
        warm_up.run(None, batch)
    session = open_session(graph, threads=1, device="cpu", profile=scratch / f"profile-{precision}")
    for _ in range(rounds):
        for batch in batches:
            session.run(None, batch)
    spent = operator_seconds(Path(session.end_profiling()))
    return Counter({name: seconds / rounds for name, seconds in spent.items()})


def _torch(checkpoint: Checkpoint, precision: str, pairs: EncodedPairs, rounds: int) -> Counter[str]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        backend = TorchBackend(load_ranker(checkpoint), precision=precision)
        rank_pairs(backend, pairs)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            for _ in range(rounds):
                rank_pairs(backend, pairs)
    finally:
        torch.set_num_threads(threads)
    averages = profiler.key_averages()
    return Counter({event.key: event.self_cpu_time_total / 1e6 / rounds for event in averages})


def _rows(form: str, spent: Counter[str]) -> list[dict[str, Value]]:
    total = spent.total()
    listed = dict(spent.most_common(LISTED))
    listed["others"] = total - sum(listed.values())
    return [
        {"form": form, "operator": name, "milliseconds": 1000 * seconds, "share": seconds / total}
        for name, seconds in listed.items()
    ]
