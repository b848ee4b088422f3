"""Compares OpenVINO with the default backend, with the same graphs, batches and threads, in turn.

This is an experiment, not a backend; docs/decisions/0008 has the results. It needs `openvino`, which can read the int8
graphs of a checkpoint. OpenVINO prepares its kernels for each new shape of a batch. Therefore one question is measured
repeatedly, as benchmarks usually do, and other questions once each, as a service receives them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerberank_benchmarks.report import Chart, Report, Value
from cerberank_benchmarks.rounds import median_seconds
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_benchmarks.workload import Workload
from cerberank_models.backends.batching import BucketRule
from cerberank_models.backends.contract import Scores
from cerberank_models.backends.onnx_backend import OnnxBackend
from cerberank_models.backends.processors import compute_threads
from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.encoding import EncodedPairs
from cerberank_models.rank import log_odds, pairs_policy, rank_pairs
from cerberank_training.data import read_questions, sampled

OURS = "ONNX Runtime int8"
FEW_SHAPES = "OpenVINO int8, other operators in bf16, few shapes"
MULTIPLE = 8
"""With few shapes, a batch is padded to a multiple of this number of tokens a pair."""
STEP_TOKENS = 256
"""With few shapes, the number of pairs of a batch is padded to a multiple of those that fit into this many tokens."""
Rank = Callable[[EncodedPairs], Scores]


class OpenVinoNeededError(ImportError):
    """The experiment's library is not installed; it is not a dependency of the project."""


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per form of the graphs. Raises OpenVinoNeededError."""
    openvino = _library()
    checkpoint = read_checkpoint(settings.checkpoint or default_checkpoint())
    known, new = _questions(settings, checkpoint, settings.candidates[0])
    ranks = forms(openvino, checkpoint)
    reference = ranks[OURS]
    if checkpoint.weights is not None:
        reference = _rank(open_backend(checkpoint, kind="torch", precision="fp32"))
    wanted = [reference(pairs) for pairs in new]
    for warm_up in ranks.values():
        warm_up(known)
    again = median_seconds(
        {name: partial(rank, known) for name, rank in ranks.items()}, rounds=settings.rounds, label="the same question"
    )
    once: dict[str, list[float]] = {name: [] for name in ranks}
    scores: dict[str, list[Scores]] = {name: [] for name in ranks}
    for pairs in new:
        for name, rank in ranks.items():
            started = time.perf_counter()
            scores[name].append(rank(pairs))
            once[name].append(1e6 * (time.perf_counter() - started) / pairs.tokens)
    rows: list[dict[str, Value]] = [
        {
            "by": name,
            "seconds": again[name],
            "times as fast": again[OURS] / again[name],
            "new questions, microseconds a token": median(once[name]),
            "new questions, times as fast": median(
                ours / other for ours, other in zip(once[OURS], once[name], strict=True)
            ),
            **agreement(scores[name], wanted),
        }
        for name in ranks
    ]
    judged = "torch fp32" if checkpoint.weights is not None else OURS
    return Report(
        name="openvino",
        text=f"{checkpoint.config.name}, tokens to scores without drops: one question of {len(known)} pairs and "
        f"{known.tokens} tokens again and again, then {len(new)} others once each, of "
        f"{sum(len(pairs) for pairs in new)} pairs; difference from {judged} on these.",
        rows=rows,
        chart=Chart(
            kind="bars",
            places=list(ranks),
            series={
                "the same question": [float(str(row["times as fast"])) for row in rows],
                "new questions": [float(str(row["new questions, times as fast"])) for row in rows],
            },
            place_label="form",
            value_label="times as fast as ONNX Runtime int8",
        ),
    )


def _library() -> Any:
    try:
        import openvino  # noqa: PLC0415 - only needed for this experiment
    except ImportError as error:
        raise OpenVinoNeededError("install openvino beside the training environment") from error
    return openvino


def _questions(
    settings: BenchmarkSettings, checkpoint: Checkpoint, count: int
) -> tuple[EncodedPairs, list[EncodedPairs]]:
    """The question that is repeated, and other questions, from the data or generated."""
    encoder = checkpoint.encoder()
    if settings.data:
        questions = sampled(
            list(read_questions(settings.one_set("openvino"))),
            size=settings.questions,
            seed=settings.seed,
            name="clean",
        )
        texts = [(each.text, [row.candidate for row in each.candidates][:count]) for each in questions]
    else:
        tasks = [Workload(settings).task(count, seed=seed) for seed in range(5)]
        texts = [(task.question, task.candidates) for task in tasks]
    first, *others = (encoder.encode(question, candidates) for question, candidates in texts)
    return first, others


def forms(openvino: Any, checkpoint: Checkpoint) -> dict[str, Rank]:
    """Functions that rank with each form of the checkpoint's int8 graphs, by name."""
    sessions = partial(_sessions, openvino, checkpoint)
    return {
        OURS: _rank(open_backend(checkpoint, precision="int8")),
        "OpenVINO int8": _rank(_InOpenVino(checkpoint, sessions("f32"))),
        "OpenVINO int8, other operators in bf16": _rank(_InOpenVino(checkpoint, sessions("bf16"))),
        FEW_SHAPES: _rank(_OfFewShapes(checkpoint, sessions("bf16"))),
        "OpenVINO bf16": _rank(_InOpenVino(checkpoint, sessions("bf16", whole=True))),
    }


def _rank(backend: Any) -> Rank:
    keep_all = pairs_policy(backend.config, 0.0)
    return lambda pairs: rank_pairs(backend, pairs, keep_all).scores


def _sessions(openvino: Any, checkpoint: Checkpoint, precision: str, *, whole: bool = False) -> list[_Session]:
    """The stages, computed in `precision`; with `whole`, activations are not quantised and int8 weights are widened."""
    threads, core = compute_threads(None), openvino.Core()
    options = {"INFERENCE_PRECISION_HINT": precision, "NUM_STREAMS": threads, "INFERENCE_NUM_THREADS": threads}
    models = [core.read_model(str(graph)) for graph in checkpoint.stage_graphs("int8")]
    for model in models if whole else ():
        without_quantisation(model)
    return [_Session(core.compile_model(model, "CPU", options)) for model in models]


def without_quantisation(model: Any) -> None:
    """Remove the quantisation of activations, so that every product reads its original input."""
    for quantised in [op for op in model.get_ops() if op.get_type_name() == "FakeQuantize"]:
        waiting = [quantised]
        while waiting:
            node = waiting.pop()
            if node.get_type_name() == "Multiply":  # the product with the scale is the last step of dequantisation
                node.output(0).replace(quantised.input_value(0))
            else:
                waiting += [target.get_node() for target in node.output(0).get_target_inputs()]
    model.validate_nodes_and_infer_types()


class _Session:
    """A compiled graph with the interface of an ONNX Runtime session; every thread has its own request."""

    def __init__(self, compiled: Any) -> None:
        self._compiled, self._own = compiled, threading.local()

    def run(self, names: None, inputs: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        if not hasattr(self._own, "request"):
            self._own.request = self._compiled.create_infer_request()
        outputs = self._own.request.infer(inputs, share_inputs=True)
        return [np.array(outputs[number]) for number in range(len(self._compiled.outputs))]


class _InOpenVino(OnnxBackend):
    """The default backend with OpenVINO's sessions, so that batches, threads and states are the same."""

    def __init__(self, checkpoint: Checkpoint, sessions: Sequence[_Session | _Padded]) -> None:
        super().__init__(checkpoint.stage_graphs("int8"), checkpoint.config, precision="int8")
        self._sessions = sessions  # type: ignore[assignment]


class _OfFewShapes(_InOpenVino):
    """The same with batches padded to few shapes. All of them are run once before, as a service would at its start."""

    def __init__(self, checkpoint: Checkpoint, sessions: Sequence[_Session]) -> None:
        padded = [_Padded(session) for session in sessions]
        super().__init__(checkpoint, padded)
        for length in range(MULTIPLE, checkpoint.config.encoding.max_length + MULTIPLE, MULTIPLE):
            most = max(1, BucketRule().tokens // length)
            for pairs in {padded_shape(pairs, length)[0] for pairs in range(1, most + 1)}:
                ids, mask = np.zeros((pairs, length), dtype=np.int64), np.ones((pairs, length), dtype=np.bool_)
                _, *hidden = padded[0].run(None, {"token_ids": ids, "type_ids": ids, "mask": mask})
                for session in padded[1:]:
                    _, *hidden = session.run(None, {"hidden": hidden[0], "mask": mask})


class _Padded:
    """A session that pads its inputs to one of few shapes and removes the padding from the outputs."""

    def __init__(self, session: _Session) -> None:
        self._session = session

    def run(self, names: None, inputs: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        pairs, length = inputs["mask"].shape
        more, longer = (new - old for new, old in zip(padded_shape(pairs, length), (pairs, length), strict=True))
        padded = {
            name: np.pad(each, [(0, more), (0, longer)] + [(0, 0)] * (each.ndim - 2)) for name, each in inputs.items()
        }
        padded["mask"][pairs:, 0] = True  # attention of a pair without tokens would be a division by zero
        logits, *hidden = self._session.run(names, padded)
        return [logits[:pairs], *(each[:pairs, :length] for each in hidden)]


def padded_shape(pairs: int, length: int) -> tuple[int, int]:
    """The number of pairs and the tokens of each in a batch, padded to one of few shapes."""
    length = -(-length // MULTIPLE) * MULTIPLE
    step = max(1, STEP_TOKENS // length)
    return -(-pairs // step) * step, length


def operator_seconds(graph: Path, batches: Sequence[dict[str, NDArray[Any]]], rounds: int) -> Counter[str]:
    """Seconds of one thread by type of operator for all batches, from OpenVINO's own profile; means over the rounds.

    By OpenVINO's default, operators other than integer products run in bf16 if the processor has products in bf16.
    Raises OpenVinoNeededError.
    """
    options = {"NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": 1, "PERF_COUNT": True}
    core = _library().Core()
    request = core.compile_model(core.read_model(str(graph)), "CPU", options).create_infer_request()
    for batch in batches:  # OpenVINO prepares its kernels for the shape of each batch
        request.infer(batch)
    spent: Counter[str] = Counter()
    for _ in range(rounds):
        for batch in batches:
            request.infer(batch)
            for node in request.profiling_info:
                spent[node.node_type] += node.real_time.total_seconds() / rounds
    return spent


def agreement(scores: Sequence[Scores], reference: Sequence[Scores]) -> dict[str, Value]:
    """Root mean square of the difference in log odds, and the percentage of questions with the same first candidate."""
    difference = np.concatenate([log_odds(one) - log_odds(other) for one, other in zip(scores, reference, strict=True)])
    first = [int(one.argmax() == other.argmax()) for one, other in zip(scores, reference, strict=True)]
    return {"difference": float(np.sqrt((difference**2).mean())), "same first, %": 100 * float(np.mean(first))}
