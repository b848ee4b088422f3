"""Pieces `graphs` and `fusion`: the gains and costs of captured graphs, and of compiling residuals with their norms."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np

from cerberank_benchmarks.gpu.lab import Findings, Lab, Problem
from cerberank_benchmarks.gpu.networks import MINI, THREE_HEADS, Shape, equal_pairs, random_ranker
from cerberank_benchmarks.gpu.scores import BOUND
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.encoding import EncodedPairs
from cerberank_models.rank_pairs import rank_pairs

GRAPHS = (
    "Milliseconds of a step with and without captured graphs, in turns; what capturing takes, and a capture while "
    "another thread computes, whose scores must not change."
)
FUSION = (
    "Milliseconds of a step, without graphs and with them, where torch.compile fuses each residual with its norm, "
    "against the same without; on a processor nothing is compiled."
)
SHAPES = (MINI, THREE_HEADS)


def graphs(lab: Lab) -> Findings:
    """Rows with the speeds for each shape and step, then rows on captures."""
    for shape in SHAPES:
        before = lab.taken_bytes()
        eager = lab.backend(random_ranker(lab, shape))
        plain, started = lab.taken_bytes(), lab.clock()
        captured = lab.backend(random_ranker(lab, shape), graph_tokens=max(lab.sizes.graph_steps))
        lab.synchronise()
        seconds = lab.clock() - started
        graph_bytes = lab.taken_bytes() - plain - (plain - before)
        for tokens in lab.sizes.graph_steps:
            yield from _speeds(lab, shape, {"eager": eager, "graphs": captured}, tokens)
        yield {
            "network": shape.name,
            "captured tokens": max(lab.sizes.graph_steps),
            "capture, s": seconds,
            "capture, MB": graph_bytes / 1e6,
        }
    yield from _beside_an_engine(lab)


def fusion(lab: Lab) -> Findings:
    """Rows with the speeds for each shape and step."""
    largest = max(lab.sizes.graph_steps[:-1])
    for shape in SHAPES:
        backends = {"eager": lab.backend(random_ranker(lab, shape))}
        backends["graphs"] = lab.backend(random_ranker(lab, shape), graph_tokens=largest)
        started = lab.clock()
        backends["eager, fused"] = lab.backend(random_ranker(lab, shape), fuse=True)
        backends["graphs, fused"] = lab.backend(random_ranker(lab, shape), graph_tokens=largest, fuse=True)
        rank_pairs(backends["eager, fused"], equal_pairs(lab, 2))
        yield {"network": shape.name, "compile and capture, s": lab.clock() - started}
        for tokens in lab.sizes.graph_steps[:-1]:
            yield from _speeds(lab, shape, backends, tokens)


def _speeds(lab: Lab, shape: Shape, backends: dict[str, TorchBackend], tokens: int) -> Findings:
    pairs = equal_pairs(lab, max(1, tokens // lab.sizes.tokens))
    scores = {name: rank_pairs(backend, pairs).scores for name, backend in backends.items()}
    seconds = lab.compared({name: partial(rank_pairs, backend, pairs) for name, backend in backends.items()})
    base = scores["eager"]
    largest = max(float(np.abs(other - base).max()) for other in scores.values())
    yield {
        "network": shape.name,
        "tokens": pairs.tokens,
        **{f"{name}, ms": 1000 * value for name, value in seconds.items()},
        **{f"eager / {name}": seconds["eager"] / value for name, value in seconds.items() if name != "eager"},
        "largest difference": largest,
    }
    if not largest <= BOUND[lab.precision]:
        yield Problem(f"{shape.name}, {pairs.tokens} tokens: forms differ by {largest:.2g}")


def _beside_an_engine(lab: Lab) -> Findings:
    """Capture the graphs of a second backend while the first one computes in another thread."""
    serving = lab.backend(random_ranker(lab, THREE_HEADS), graph_tokens=lab.sizes.graph_tokens)
    pairs = equal_pairs(lab, lab.sizes.candidates)
    expected = rank_pairs(serving, pairs).scores
    engine = _Engine(serving, pairs)
    engine.start()
    started = lab.clock()
    try:
        second = lab.backend(random_ranker(lab, THREE_HEADS), graph_tokens=lab.sizes.graph_tokens)
        lab.synchronise()
        seconds = lab.clock() - started
    finally:
        engine.stopped.set()
        engine.join()
    largest = max((float(np.abs(scores - expected).max()) for scores in engine.scores), default=0.0)
    largest = max(largest, float(np.abs(rank_pairs(second, pairs).scores - expected).max()))
    yield {
        "capture beside an engine": "failed" if engine.error else "worked",
        "s": seconds,
        "answers meanwhile": len(engine.scores),
        "largest difference": largest,
    }
    if engine.error is not None:
        yield Problem(f"a capture breaks the engine beside it: {engine.error}")
    if not largest <= BOUND[lab.precision]:
        yield Problem(f"a capture beside an engine moves scores by {largest:.2g}")


class _Engine(threading.Thread):
    """Computes the same question until it is stopped, at least once."""

    def __init__(self, backend: TorchBackend, pairs: EncodedPairs) -> None:
        super().__init__(daemon=True)
        self._backend = backend
        self._pairs = pairs
        self.stopped = threading.Event()
        self.scores: list[np.ndarray] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self.scores or not self.stopped.is_set():
                self.scores.append(rank_pairs(self._backend, self._pairs).scores)
        except Exception as error:  # the piece reports it
            self.error = error
