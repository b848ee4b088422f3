"""Piece `capture`: captures graphs of a backend while another one computes, and closes it again.

A service that takes up and unloads a version does the same.
"""

from __future__ import annotations

import threading

import numpy as np

from cerberank_benchmarks.gpu.lab import Findings, Lab, Problem
from cerberank_benchmarks.gpu.networks import THREE_HEADS, equal_pairs, random_ranker
from cerberank_benchmarks.gpu.reference import BOUND
from cerberank_models.backends.device_memory import return_unused_memory
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.encoding import EncodedPairs
from cerberank_models.rank_pairs import rank_pairs

TEXT = "A capture while another thread computes, whose scores must not change; the memory after it was closed."
REMAINDER = 64 << 20
"""Bytes that a closed backend may leave: handles and workspaces of libraries, which threads share."""


def run(lab: Lab) -> Findings:
    """Capture the graphs of a second backend while the first one computes in another thread."""
    serving = lab.backend(random_ranker(lab, THREE_HEADS), graph_tokens=lab.sizes.graph_tokens)
    pairs = equal_pairs(lab, min(lab.sizes.candidates, lab.sizes.graph_tokens // lab.sizes.tokens))
    expected = rank_pairs(serving, pairs).scores
    engine = _Engine(serving, pairs)
    engine.start()
    reserved, started = lab.reserved_bytes(), lab.clock()
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
    used = lab.reserved_bytes() - reserved
    del second
    return_unused_memory(lab.device)
    left = lab.reserved_bytes() - reserved
    yield {"MB of the second backend": used / 1e6, "MB after it was closed": left / 1e6}
    if left > REMAINDER:
        yield Problem(f"a closed backend leaves {left / 1e6:.0f} MB on the device")
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
