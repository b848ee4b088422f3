"""Piece `lock`: the time for which the launch of a step waits for the GIL while other threads of the service use it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from cerberank_benchmarks.gpu.lab import Findings, Lab
from cerberank_benchmarks.gpu.networks import MINI, THREE_HEADS, Shape, equal_pairs, random_ranker
from cerberank_models.backends.cuda_graphs import TOKENS_PER_PAIR, CapturedStages, GraphSize
from cerberank_models.backends.cuda_streams import own_stream
from cerberank_models.backends.torch_stages import StageInput, TorchStages, token_table

TEXT = (
    "Milliseconds until Python has launched all kernels of a step, and until the device has computed them, eager and "
    "as a captured graph of just its size: alone, and beside a thread of pure Python, which gives up the lock only "
    "when it must. On a processor nothing is launched: both figures are the computation."
)


def run(lab: Lab) -> Findings:
    """A row for each network, step, form and number of busy threads."""
    for shape in (MINI, THREE_HEADS):
        for tokens in lab.sizes.lock_steps:
            for form, step in _forms(lab, shape, tokens).items():
                for busy in (0, 1):
                    with _busy(busy):
                        launches, wholes = _times(lab, step)
                    yield {
                        "network": shape.name,
                        "tokens": tokens,
                        "form": form,
                        "busy threads": busy,
                        "launch, ms": 1000 * float(np.median(launches)),
                        "launch p95, ms": 1000 * float(np.quantile(launches, 0.95)),
                        "step, ms": 1000 * float(np.median(wholes)),
                        "step p95, ms": 1000 * float(np.quantile(wholes, 0.95)),
                    }


def _forms(lab: Lab, shape: Shape, tokens: int) -> dict[str, Callable[[], object]]:
    """Functions that launch the first stage, which is the whole network, by single kernels and as a graph."""
    lab.check_time()
    place, pairs = torch.device(lab.device), equal_pairs(lab, max(1, tokens // lab.sizes.tokens))
    ranker = random_ranker(lab, shape)
    lab.synchronise()
    stream = own_stream(place) if lab.on_gpu else None
    size = GraphSize(tokens, tokens // TOKENS_PER_PAIR)
    with torch.inference_mode(), torch.cuda.stream(stream):
        stages = TorchStages(ranker, device=place, precision=lab.dtype, kernel=lab.kernel)
        inputs = StageInput(
            offsets=stages.upload(pairs.offsets.astype(np.int32)),
            longest=lab.sizes.tokens,
            tokens=stages.upload(token_table(pairs)),
            hidden=None,
        )
        captured = CapturedStages(stages, [size], lab.capture)
    lab.synchronise()

    def on_stream(compute: Callable[[], object]) -> Callable[[], object]:
        def launch() -> None:
            with torch.inference_mode(), torch.cuda.stream(stream):
                compute()

        return launch

    return {"eager": on_stream(lambda: stages(0, inputs)), "graph": on_stream(lambda: captured.run(0, size, inputs))}


def _times(lab: Lab, step: Callable[[], object]) -> tuple[list[float], list[float]]:
    """Seconds of each launch, and of each launch with its computation."""
    launches, wholes = [], []
    for count in range(lab.sizes.warm_up + lab.sizes.lock_rounds):
        lab.check_time()
        lab.synchronise()
        started = lab.clock()
        step()
        launched = lab.clock()
        lab.synchronise()
        if count >= lab.sizes.warm_up:
            launches.append(launched - started)
            wholes.append(lab.clock() - started)
    return launches, wholes


@contextmanager
def _busy(threads: int) -> Iterator[None]:
    """Run this number of threads with pure Python work during the block."""
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            sum(range(1000))

    workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        ended.set()
        for worker in workers:
            worker.join()
