"""Measures OpenVINO against the default backend with the same ranker, batches and threads, in turns.

This is an experiment, not a backend; docs/decisions/0003 has the results. It runs without drops, as one graph from
tokens to logits, and needs `openvino` and `nncf`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cerberank_benchmarks.pieces.offline import speed_chart
from cerberank_benchmarks.report import Report, Value
from cerberank_benchmarks.rounds import median_seconds
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_benchmarks.workload import Workload
from cerberank_models.backends.batching import BucketRule, buckets_of
from cerberank_models.backends.contract import Scores, combine
from cerberank_models.backends.processors import usable_processors
from cerberank_models.backends.registry import open_backend
from cerberank_models.backends.thread_pool import ThreadPool
from cerberank_models.backends.torch_backend import load_ranker
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.encoding import EncodedPairs
from cerberank_models.network.absorbed import AbsorbedHeads
from cerberank_models.network.layout import PaddedLayout
from cerberank_models.network.ranker import Ranker
from cerberank_models.rank import rank_pairs
from cerberank_training.data import read_questions, sampled

REFERENCE = "ONNX Runtime fp32"
CALIBRATION_BATCH = 16
Inputs = dict[str, NDArray[Any]]


class OpenVinoNeededError(ImportError):
    """The experiment's libraries are not installed; they are not dependencies of the project."""


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per number of candidates and form. Raises OpenVinoNeededError."""
    nncf, openvino = _libraries()
    checkpoint = read_checkpoint(settings.checkpoint or default_checkpoint())
    asked = _questions(settings, checkpoint)
    ranks = _forms(nncf, openvino, checkpoint, asked)
    scores = {name: [rank(pairs) for pairs in asked] for name, rank in ranks.items()}
    rows: list[dict[str, Value]] = []
    workload = Workload(settings)
    for count in settings.candidates:
        task = workload.task(count)
        pairs = checkpoint.encoder().encode(task.question, task.candidates)
        runs: dict[str, Callable[[], object]] = {name: partial(rank, pairs) for name, rank in ranks.items()}
        for warm_up in runs.values():
            warm_up()
        seconds = median_seconds(runs, rounds=settings.rounds, label=f"{count} candidates")
        for name, value in seconds.items():
            agreed = agreement(scores[name], scores[REFERENCE])
            rows.append({"candidates": count, "by": name, "seconds": value, "candidates/s": count / value, **agreed})
    return Report(
        name="openvino",
        text=f"{checkpoint.config.name}, tokens to scores without drops; agreement with {REFERENCE} on {len(asked)} "
        f"questions of {sum(len(pairs) for pairs in asked)} pairs.",
        rows=rows,
        chart=speed_chart(rows),
    )


def _libraries() -> tuple[Any, Any]:
    try:
        import nncf  # noqa: PLC0415 - needed for this experiment alone
        import openvino  # noqa: PLC0415
    except ImportError as error:
        raise OpenVinoNeededError("install openvino and nncf beside the training environment") from error
    return nncf, openvino


def _questions(settings: BenchmarkSettings, checkpoint: Checkpoint) -> list[EncodedPairs]:
    """Questions of the data, or else made-up ones."""
    encoder = checkpoint.encoder()
    if not settings.data:
        tasks = [Workload(settings).task(50, seed=seed) for seed in range(4)]
        return [encoder.encode(task.question, task.candidates) for task in tasks]
    data = settings.one_set("openvino")
    questions = sampled(list(read_questions(data)), size=settings.questions, seed=settings.seed, name="clean")
    return [encoder.encode(each.text, [row.candidate for row in each.candidates]) for each in questions]


def _forms(
    nncf: Any, openvino: Any, checkpoint: Checkpoint, calibration: Sequence[EncodedPairs]
) -> dict[str, Callable[[EncodedPairs], Scores]]:
    """The forms to compare, by name. NNCF's ranges are measured on the test questions, which favours it."""
    keep_all = checkpoint.config.drop_policy(0.0)

    def ours(precision: str) -> Callable[[EncodedPairs], Scores]:
        backend = open_backend(checkpoint, precision=precision)
        return lambda pairs: rank_pairs(backend, pairs, keep_all).scores

    batch = calibration[0].select(np.arange(min(2, len(calibration[0]))))
    with torch.no_grad():
        example = {name: torch.from_numpy(value) for name, value in padded(batch, np.arange(len(batch))).items()}
        model = openvino.convert_model(Whole(load_ranker(checkpoint)).eval(), example_input=example)
    batches = list(_batches(calibration))
    quantised = nncf.quantize(
        model, nncf.Dataset(batches), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(batches)
    )
    how = checkpoint.config.architecture.combine
    return {
        REFERENCE: ours("fp32"),
        "ONNX Runtime int8": ours("int8"),
        "OpenVINO fp32": _OpenVino(openvino, model, "f32", how).scores,
        "OpenVINO bf16": _OpenVino(openvino, model, "bf16", how).scores,
        "OpenVINO int8 (NNCF)": _OpenVino(openvino, quantised, "f32", how).scores,
    }


class Whole(nn.Module):
    """Padded tokens to the heads' logits, as the exported stages compute them."""

    def __init__(self, ranker: Ranker) -> None:
        """Share the modules of `ranker`."""
        super().__init__()
        self.ranker, self.heads = ranker, AbsorbedHeads(ranker.heads)

    def forward(self, token_ids: Tensor, type_ids: Tensor, mask: Tensor) -> Tensor:
        """Token ids, type ids and mask, `[N, S]` each, to logits `[N, k]`."""
        layout = PaddedLayout(mask)
        encoder = self.ranker.encoder
        hidden = encoder.run(encoder.embed(token_ids, type_ids, layout), layout, 0, len(encoder.layers))
        logits: Tensor = self.heads(hidden, layout)
        return logits


class _OpenVino:
    """A compiled model with a stream for each thread, which gets the same batches as the ONNX backend."""

    def __init__(self, openvino: Any, model: Any, precision: str, how: Any) -> None:
        self._threads, self._combine, self._own = usable_processors(), how, threading.local()
        options = {
            "INFERENCE_PRECISION_HINT": precision,
            "NUM_STREAMS": self._threads,
            "INFERENCE_NUM_THREADS": self._threads,
        }
        self._compiled = openvino.Core().compile_model(model, "CPU", options)
        self._pool = ThreadPool(self._threads)

    def scores(self, pairs: EncodedPairs) -> Scores:
        """One score per pair."""
        buckets = list(buckets_of(pairs.lengths, BucketRule(), self._threads))
        logits: dict[int, NDArray[np.float32]] = {}

        def infer(number: int) -> None:
            if not hasattr(self._own, "request"):
                self._own.request = self._compiled.create_infer_request()
            outputs = self._own.request.infer(padded(pairs, buckets[number]))
            logits[number] = np.array(outputs[0], dtype=np.float32)

        self._pool.run(partial(infer, number) for number in range(len(buckets)))
        order = np.argsort(np.concatenate(buckets))
        return combine(np.concatenate([logits[number] for number in range(len(buckets))])[order], self._combine)


def _batches(questions: Iterable[EncodedPairs]) -> Iterable[Inputs]:
    """Some pairs of each question, for NNCF to measure ranges on."""
    for pairs in questions:
        yield padded(pairs, np.arange(min(CALIBRATION_BATCH, len(pairs))))


def padded(pairs: EncodedPairs, rows: NDArray[np.int64]) -> Inputs:
    """The inputs of one batch."""
    chosen = pairs.select(rows)
    mask = np.arange(int(chosen.lengths.max()))[None, :] < chosen.lengths[:, None]
    inputs: Inputs = {"mask": mask}
    for name in ("token_ids", "type_ids"):
        inputs[name] = np.zeros(mask.shape, dtype=np.int64)
        inputs[name][mask] = getattr(chosen, name)
    return inputs


def agreement(scores: Sequence[Scores], reference: Sequence[Scores]) -> dict[str, Value]:
    """Root mean square of the difference in log odds, and how often the same candidate comes first."""
    ours, theirs = (np.clip(np.concatenate(list(each)), 1e-9, 1 - 1e-9) for each in (scores, reference))
    difference = np.log(ours / (1 - ours)) - np.log(theirs / (1 - theirs))
    first = [int(one.argmax() == other.argmax()) for one, other in zip(scores, reference, strict=True)]
    return {"difference": float(np.sqrt((difference**2).mean())), "same first, %": 100 * float(np.mean(first))}
