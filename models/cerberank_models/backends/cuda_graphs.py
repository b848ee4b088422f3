"""Stages captured as CUDA graphs for fixed numbers of tokens: one launch a stage instead of a hundred.

A step's pairs are copied into the tensors of the smallest graph that holds them; the rest is filled with empty pairs
(see `VarlenLayout`), whose results are cut off. Sizes grow by a quarter at most, so that at most a fifth of the
computed tokens is padding.
"""

from __future__ import annotations

import gc
import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cerberank_models.backends.torch_stages import StageInput, TorchStages

logger = logging.getLogger(__name__)

Output = tuple[Tensor, Tensor]
Compute = Callable[[], Output]
Capture = Callable[[Compute], Compute]
"""Captures a computation on fixed tensors: calling the result runs it again and updates the same output tensors."""

LEAST_TOKENS = 256
TOKENS_PER_PAIR = 16
"""A graph of T tokens has room for T / 16 pairs: pairs with a shorter mean length need a larger graph."""
WARM_UP = 3
"""Runs before a capture, in which libraries choose kernels and allocate workspaces."""
CAPTURE_MODE = "thread_local"
"""Other threads may allocate and copy on the device while this one captures (cudaStreamCaptureMode)."""
INVALIDATED = re.compile("stream is capturing|error during capture")
"""In the messages of errors by which CUDA says that a capture is lost, often by a call that has nothing to do with what
is captured (cudaErrorStreamCaptureUnsupported, cudaErrorStreamCaptureInvalidated)."""

_capturing = threading.Lock()
"""One for the whole process, because it has one garbage collection."""
_unended: set[torch.cuda.CUDAGraph] = set()
"""Graphs whose capture could not be ended. PyTorch's allocator refers to them as long as the process lives."""


@dataclass(frozen=True, order=True, slots=True)
class GraphSize:
    """The numbers of tokens and pairs that a captured graph has room for."""

    tokens: int
    pairs: int


def graph_sizes(largest: int) -> tuple[GraphSize, ...]:
    """Sizes up to the first that holds `largest` tokens, four for each doubling.

    >>> [size.tokens for size in graph_sizes(1000)]
    [256, 320, 384, 448, 512, 640, 768, 896, 1024]
    """
    sizes = [GraphSize(LEAST_TOKENS, LEAST_TOKENS // TOKENS_PER_PAIR)]
    while sizes[-1].tokens < largest:
        tokens = sizes[-1].tokens
        tokens += 2 ** (tokens.bit_length() - 3)
        sizes.append(GraphSize(tokens, tokens // TOKENS_PER_PAIR))
    return tuple(sizes)


class CapturedStages:
    """Every stage in every size. The graphs share memory: together they take that of the largest.

    So no two graphs may run at the same time, and what a graph computes is copied before another one runs.
    """

    def __init__(self, stages: TorchStages, sizes: Sequence[GraphSize], capture: Capture | None = None) -> None:
        """Capture every stage with `capture`; None captures CUDA graphs on the current stream's device.

        Raises ValueError where attention pads: its shapes follow from the lengths and cannot be fixed.
        """
        if stages.kernel is None:
            raise ValueError("CUDA graphs need fp16 or bf16 on a GPU with variable-length attention")
        self._stages, self._capture = stages, capture or cuda_graphs()
        self._sizes: list[GraphSize] = []
        self._captured: dict[tuple[int, GraphSize], _CapturedStage] = {}
        self.extend(sizes)

    def extend(self, sizes: Sequence[GraphSize]) -> None:
        """Capture every stage in those of the sizes that are not there yet; an error leaves what was there.

        The largest is captured first, so that the others reuse its memory.
        """
        added = sorted({*sizes} - {*self._sizes}, reverse=True)
        if not added:
            return
        inputs = _largest_inputs(self._stages, added[0])
        with _without_collection():
            captured = {
                (stage, size): _CapturedStage(self._stages, stage, size, inputs, self._capture)
                for size in added
                for stage in range(len(self._stages.config.stages))
            }
        self._captured |= captured
        self._sizes = sorted([*self._sizes, *added])

    def size_for(self, tokens: int, pairs: int) -> GraphSize | None:
        """The smallest size with room for so many tokens and pairs; None when there is none."""
        return next((size for size in self._sizes if size.tokens >= tokens and size.pairs >= pairs), None)

    def run(self, stage: int, size: GraphSize, inputs: StageInput) -> Output:
        """Run a stage as `TorchStages` does; the result stays valid when the next step runs."""
        return self._captured[stage, size](inputs)


def _largest_inputs(stages: TorchStages, largest: GraphSize) -> StageInput:
    """Tensors that all graphs read, each its part of them: no two graphs run at the same time."""
    device, width = stages.device, stages.config.body.hidden_size
    # Any valid lengths will do for the capture: here, pairs of one token.
    return StageInput(
        offsets=torch.arange(largest.pairs + 1, dtype=torch.int32, device=device),
        longest=stages.config.encoding.max_length,
        tokens=torch.zeros((2, largest.tokens), dtype=torch.int32, device=device),
        hidden=torch.zeros((largest.tokens, width), dtype=stages.precision, device=device),
    )


class _CapturedStage:
    def __init__(self, stages: TorchStages, stage: int, size: GraphSize, inputs: StageInput, capture: Capture) -> None:
        assert inputs.tokens is not None, "one set of inputs serves all stages"
        assert inputs.hidden is not None, "one set of inputs serves all stages"
        self._fixed = StageInput(
            offsets=inputs.offsets[: size.pairs + 1],
            longest=inputs.longest,
            tokens=None if stage else inputs.tokens[:, : size.tokens],
            hidden=inputs.hidden[: size.tokens] if stage else None,
        )
        last = stage == len(stages.config.stages) - 1
        after = inputs.hidden[: 0 if last else size.tokens]  # nobody reads the hidden states after the last stage

        def compute() -> Output:
            hidden, logits = stages(stage, self._fixed)
            # A graph keeps the memory of what it returns: hidden states of every size and stage would take gigabytes.
            after.copy_(hidden[: len(after)])
            return after, logits

        self._replay = capture(compute)

    def __call__(self, inputs: StageInput) -> Output:
        pairs = len(inputs.offsets)
        self._fixed.offsets[:pairs].copy_(inputs.offsets, non_blocking=True)
        self._fixed.offsets[pairs:].copy_(
            inputs.offsets[-1], non_blocking=True
        )  # copied on the device, without synchronisation
        if inputs.tokens is not None:
            assert self._fixed.tokens is not None, "stage 0 alone reads tokens"
            tokens = inputs.tokens.shape[1]
            self._fixed.tokens[:, :tokens].copy_(inputs.tokens, non_blocking=True)
        else:
            assert self._fixed.hidden is not None, "later stages read hidden states"
            assert inputs.hidden is not None, "there are hidden states where there are no tokens"
            tokens = len(inputs.hidden)
            self._fixed.hidden[:tokens].copy_(inputs.hidden, non_blocking=True)
        after, logits = self._replay()
        return after[:tokens].clone(), logits[: pairs - 1].clone()


def cuda_graphs() -> Capture:
    """A capture that records CUDA graphs; they share one memory pool, because they never run at the same time.

    Call it and what it returns on a stream of its own (`TorchBackend` does): the default stream cannot be captured.
    """
    pool = torch.cuda.graph_pool_handle()

    def capture(compute: Compute) -> Compute:
        nonlocal pool
        for _ in range(WARM_UP):
            compute()
        torch.cuda.current_stream().synchronize()
        try:
            return _recorded(compute, pool)
        except RuntimeError as error:
            if not INVALIDATED.search(str(error)):
                raise
            logger.warning("the capture of a CUDA graph was invalidated and is tried once more: %s", error)
        # The allocator still takes the former pool for that of a capture under way, and would refuse it.
        pool = torch.cuda.graph_pool_handle()
        return _recorded(compute, pool)

    return capture


def _recorded(compute: Compute, pool: Any) -> Compute:
    """One capture of `compute` as a CUDA graph; PyTorch has no public type for a `pool`."""
    graph = torch.cuda.CUDAGraph()
    _unended.add(graph)
    # `torch.cuda.graph` would empty the allocator's cache, which a serving version uses at the same time. In the
    # mode "global" such a version's allocations would make the capture fail, and the capture would break them.
    graph.capture_begin(pool=pool, capture_error_mode=CAPTURE_MODE)
    try:
        output = compute()
    except BaseException:
        with suppress(RuntimeError):  # a capture that was invalidated cannot be ended without an error either
            graph.capture_end()
            _unended.discard(graph)
        raise
    graph.capture_end()
    _unended.discard(graph)

    def replay() -> Output:
        graph.replay()
        return output

    return replay


@contextmanager
def _without_collection() -> Iterator[None]:
    """No garbage is collected in the block: a CUDA graph or a kernel's module among it would be unloaded.

    That is a call which CUDA forbids on a thread that captures, and which invalidates the capture.
    """
    with _capturing:
        enabled = gc.isenabled()
        gc.collect()
        gc.disable()
        try:
            yield
        finally:
            if enabled:
                gc.enable()
