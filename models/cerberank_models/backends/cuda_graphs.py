"""Captures stages as CUDA graphs of fixed sizes, so that a stage is one launch instead of a hundred.

The pairs of a step are copied into the input tensors of the smallest graph that has room for them. The rest of the
tensors is filled with empty pairs (see `VarlenLayout`), whose results are cut off. Below `FINE_TOKENS` tokens each size
is at most a quarter larger than the one before, and from there on at most a sixteenth, because padding costs time only
when the GPU is busy.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cerberank_models.backends.device_memory import allocator_lock
from cerberank_models.backends.torch_stages import StageInput, TorchStages

logger = logging.getLogger(__name__)

Output = tuple[Tensor, Tensor]
Compute = Callable[[], Output]
Capture = Callable[[Compute], Compute]
"""Captures a computation on fixed tensors. Calling the result repeats it, and writes to the same output tensors."""

LEAST_TOKENS = 256
FINE_TOKENS = 4096
"""The size from which on sixteen sizes make a doubling, and not four."""
LONGEST_PAIR = 128
"""The most tokens of a pair in a graph. Attention starts a block of threads for every part of this length in every
pair, also in empty ones, so that a limit of 512 would start four times as many. A step with a longer pair runs without
a graph, which costs time if it has only a few thousand tokens: launching the kernels then takes longer than they do."""
TOKENS_PER_PAIR = 16
"""A graph of T tokens has room for T / 16 pairs, so pairs with a mean length below 16 need a larger graph."""
WARM_UP = 1
"""The number of runs before a capture, in which libraries choose kernels and allocate workspaces."""
CAPTURE_MODE = "thread_local"
"""The cudaStreamCaptureMode that lets other threads allocate and copy on the device during a capture."""


@dataclass(frozen=True, order=True, slots=True)
class GraphSize:
    """The numbers of tokens and pairs that a captured graph has room for."""

    tokens: int
    pairs: int


def graph_sizes(largest: int) -> tuple[GraphSize, ...]:
    """The sizes up to the first one with room for `largest` tokens.

    >>> [size.tokens for size in graph_sizes(1000)]
    [256, 320, 384, 448, 512, 640, 768, 896, 1024]
    >>> [size.tokens for size in graph_sizes(25_000)][-3:]
    [23552, 24576, 25600]
    """
    sizes = [GraphSize(LEAST_TOKENS, LEAST_TOKENS // TOKENS_PER_PAIR)]
    while sizes[-1].tokens < largest:
        tokens = sizes[-1].tokens
        # A quarter, or a sixteenth, of the power of two that is not above `tokens`.
        tokens += 2 ** (tokens.bit_length() - (3 if tokens < FINE_TOKENS else 5))
        sizes.append(GraphSize(tokens, tokens // TOKENS_PER_PAIR))
    return tuple(sizes)


class CapturedStages:
    """A graph for every stage in every size. The graphs share memory, so that all take only as much as the largest.

    Because of that, two graphs must not run at the same time, and a graph's results are copied before the next one
    runs.
    """

    def __init__(self, stages: TorchStages, sizes: Sequence[GraphSize], capture: Capture | None = None) -> None:
        """Capture every stage with `capture`; None captures CUDA graphs on the current stream's device.

        Raises ValueError without a kernel for variable-length attention, because padded attention has no fixed shapes.
        """
        if stages.kernel is None:
            raise ValueError("CUDA graphs need fp16 or bf16 on a GPU with variable-length attention")
        self._stages = stages
        self._capture = capture or cuda_graphs()
        self._longest = min(LONGEST_PAIR, stages.config.encoding.max_length)
        self._sizes: list[GraphSize] = []
        self._captured: dict[tuple[int, GraphSize], _CapturedStage] = {}
        self.extend(sizes)

    def extend(self, sizes: Sequence[GraphSize]) -> None:
        """Capture every stage in those `sizes` that were not captured before.

        If a capture fails, the old graphs remain, and steps that do not fit them run without a graph. The largest size
        is captured first, so that the other sizes reuse its memory.
        """
        added = sorted({*sizes} - {*self._sizes}, reverse=True)
        if not added:
            return
        try:
            inputs = _largest_inputs(self._stages, added[0], self._longest)
            with _without_collection():
                captured = {
                    (stage, size): _CapturedStage(self._stages, stage, size, inputs, self._capture)
                    for size in added
                    for stage in range(len(self._stages.config.stages))
                }
        except RuntimeError as error:  # out of memory, which has several forms, or an invalidated capture
            logger.warning("steps of %d tokens run without CUDA graphs: %s", added[0].tokens, error)
            return
        self._captured |= captured
        self._sizes = sorted([*self._sizes, *added])

    @property
    def tokens(self) -> int:
        """The tokens of the largest graph; 0 if none could be captured."""
        return self._sizes[-1].tokens if self._sizes else 0

    def size_for(self, tokens: int, pairs: int, longest: int) -> GraphSize | None:
        """The smallest captured size with room for these numbers of tokens and pairs; None if there is none.

        There is none if a pair is longer than the graphs were captured for.
        """
        if longest > self._longest:
            return None
        return next((size for size in self._sizes if size.tokens >= tokens and size.pairs >= pairs), None)

    def run(self, stage: int, size: GraphSize, inputs: StageInput) -> Output:
        """Run a stage, as `TorchStages.__call__` does. The result remains valid after later runs."""
        return self._captured[stage, size](inputs)


def _largest_inputs(stages: TorchStages, largest: GraphSize, longest: int) -> StageInput:
    """The input tensors that all graphs share, because they never run at the same time; smaller graphs use slices."""
    device, width = stages.device, stages.config.body.hidden_size
    # The lengths during a capture do not matter, if they are valid: all pairs have one token here.
    return StageInput(
        offsets=torch.arange(largest.pairs + 1, dtype=torch.int32, device=device),
        longest=longest,
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
        after = inputs.hidden[: 0 if last else size.tokens]  # hidden states after the last stage are not read

        def compute() -> Output:
            hidden, logits = stages(stage, self._fixed)
            # Copied to shared memory, because a graph keeps the memory of tensors that it returns, and the hidden
            # states of every size and stage would take gigabytes.
            after.copy_(hidden[: len(after)])
            return after, logits

        self._replay = capture(compute)

    def __call__(self, inputs: StageInput) -> Output:
        pairs = len(inputs.offsets)
        self._fixed.offsets[:pairs].copy_(inputs.offsets, non_blocking=True)
        self._fixed.offsets[pairs:].copy_(
            inputs.offsets[-1], non_blocking=True
        )  # this copy on the device does not synchronise
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
    """A `Capture` that records CUDA graphs, which share one memory pool because they never run at the same time.

    Call it and its results on a stream other than the default one, which cannot be captured. `TorchBackend` does so.
    """
    pool = torch.cuda.graph_pool_handle()

    def capture(compute: Compute) -> Compute:
        for _ in range(WARM_UP):
            compute()
        torch.cuda.current_stream().synchronize()
        return _recorded(compute, pool)

    return capture


def _recorded(compute: Compute, pool: Any) -> Compute:
    """Capture `compute` as a CUDA graph. PyTorch has no public type for a `pool`."""
    graph = torch.cuda.CUDAGraph()
    # `torch.cuda.graph` is not used, because it empties the allocator's cache, which other loaded versions use at the
    # same time. In the mode "global", the capture and the allocations of such versions would make each other fail.
    graph.capture_begin(pool=pool, capture_error_mode=CAPTURE_MODE)
    try:
        output = compute()
    except BaseException:
        with suppress(RuntimeError):  # ending an invalidated capture raises another error
            _ended(graph, pool)
        raise
    _ended(graph, pool)

    def replay() -> Output:
        graph.replay()
        return output

    return replay


def _ended(graph: torch.cuda.CUDAGraph, pool: Any) -> None:
    """End the capture of `graph`. If that fails, the allocator can be used as before."""
    try:
        graph.capture_end()
    except RuntimeError:
        # Before PyTorch 2.12 the allocator would count the pool as being captured until the process exits, and could
        # return no memory to the device any more (pytorch#180395). There is no public function for this.
        with suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
        raise


@contextmanager
def _without_collection() -> Iterator[None]:
    """Switch off garbage collection in the block, because it might unload a CUDA graph or a kernel's module.

    CUDA forbids unloading on a capturing thread, and the call would invalidate the capture.
    """
    with allocator_lock:
        enabled = gc.isenabled()
        gc.collect()
        gc.disable()
        try:
            yield
        finally:
            if enabled:
                gc.enable()
