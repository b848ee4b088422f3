"""Piece `faults`: a step that does not fit into the GPU's memory, and the steps after it.

On a processor, the backend has a kernel that raises the error of full memory, and the service runs without a fault.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import torch
from torch import Tensor

from cerberank_benchmarks.clients.processes import bodies
from cerberank_benchmarks.clients.server import Server
from cerberank_benchmarks.gpu.lab import Findings, Lab, Problem
from cerberank_benchmarks.gpu.networks import THREE_HEADS, equal_pairs, random_ranker
from cerberank_benchmarks.gpu.reference import BOUND
from cerberank_benchmarks.gpu.served import OUT_OF_MEMORY, counted, job, served_checkpoint, service
from cerberank_models.encoding import EncodedPairs
from cerberank_models.network.varlen import Spans, VarlenAttention
from cerberank_models.rank_pairs import rank_pairs

TEXT = (
    "A backend and the real service are given a step that is too large for the memory that is left. A backend must "
    "raise, then score as before; the service must answer, while memory is short and after."
)


def run(lab: Lab) -> Findings:
    """A row for the backend, then one for each answer of the service."""
    yield from _backend(lab)
    yield from _service(lab)


def _backend(lab: Lab) -> Findings:
    limited = lab if lab.kernel is None else replace(lab, kernel=_too_large_beyond(lab.sizes.fault_step, lab.kernel))
    backend = limited.backend(random_ranker(lab, THREE_HEADS), precision=None if lab.on_gpu else "bf16")
    small = equal_pairs(lab, 4)
    large = equal_pairs(lab, 2 * lab.sizes.fault_step // lab.sizes.tokens)
    before = rank_pairs(backend, small).scores
    with _memory_capped(lab):
        raised = _error(backend, large)
    gc.collect()  # frees the step's tensors, which the error's traceback references
    after = rank_pairs(backend, small).scores
    difference = float(np.abs(after - before).max())
    yield {"of": "backend", "tokens": large.tokens, "raised": raised, "difference after": difference}
    if "OutOfMemoryError" not in raised:
        yield Problem(f"a step of {large.tokens} tokens without memory gave {raised}")
    if not difference <= BOUND[lab.precision]:
        yield Problem(f"scores differ by {difference:.2g} after the memory ran out")


def _service(lab: Lab) -> Findings:
    # Other memory is held until the question has been asked once.
    checkpoint = served_checkpoint(lab, THREE_HEADS)
    expected: list[int] | None = None
    size = lab.sizes.fault_step // lab.sizes.tokens
    with ExitStack() as memory, ExitStack() as running:
        held = memory.enter_context(lab.memory_left(lab.sizes.fault_bytes))
        server = running.enter_context(service(lab, checkpoint, step_tokens=max(128, lab.sizes.fault_step)))
        large = next(bodies(job(lab, server, clients=1, candidates=size, repeated=True), 0))
        for attempt in ("while memory is short", "after"):
            status, best, seconds = _answer(lab, server, large)
            expected = expected or best
            ready = server.client.get("/health/ready").status_code
            yield {
                "of": "service",
                "attempt": attempt,
                "candidates": size,
                "memory held, GB": held / 1e9,
                "status": status,
                "s": seconds,
                "out of memory": counted(server, OUT_OF_MEMORY),
                "ready": ready,
            }
            if (status, ready, best) != (200, 200, expected):
                yield Problem(f"the large question, {attempt}, gave {status}, readiness {ready}")
            if lab.on_gpu and counted(server, OUT_OF_MEMORY) == 0:
                yield Problem("the service did not run out of memory: nothing was shown")
            memory.close()
            held = 0


def _answer(lab: Lab, server: Server, body: bytes) -> tuple[int, list[int], float]:
    """The status, the best candidate (in a list, empty without an answer), and the seconds."""
    started = lab.clock()
    try:
        response = server.client.post("/v1/rank", content=body, timeout=max(1.0, lab.remaining))
    except httpx.TransportError:
        return 0, [], lab.clock() - started
    document: dict[str, Any] = response.json() if response.status_code == 200 else {"results": []}
    return response.status_code, [result["index"] for result in document["results"][:1]], lab.clock() - started


def _error(backend: Any, pairs: EncodedPairs) -> str:
    """The type of the error that ranking raises, or "nothing"; no reference to the error is kept."""
    try:
        rank_pairs(backend, pairs)
    except RuntimeError as error:
        return type(error).__name__
    return "nothing"


@contextmanager
def _memory_capped(lab: Lab) -> Iterator[None]:
    """Limit this process's memory on the GPU to its current use plus far less than the large step needs."""
    if not lab.on_gpu:
        yield
        return
    _, total = torch.cuda.mem_get_info(lab.device)
    most = lab.taken_bytes() + lab.sizes.fault_bytes // 16
    torch.cuda.set_per_process_memory_fraction(most / total, lab.device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, lab.device)


def _too_large_beyond(tokens: int, kernel: VarlenAttention) -> VarlenAttention:
    """A kernel that raises PyTorch's out-of-memory error for more than `tokens` tokens."""

    def limited(query: Tensor, key: Tensor, value: Tensor, spans: Spans) -> Tensor:
        if len(key) > tokens:
            raise torch.OutOfMemoryError("out of memory (made up)")
        return kernel(query, key, value, spans)

    return limited
