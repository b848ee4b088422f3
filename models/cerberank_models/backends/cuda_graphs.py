"""Stages captured as CUDA graphs for fixed numbers of tokens: one launch a stage instead of a hundred.

A step's pairs are copied into the tensors of the smallest graph that holds them; the rest is filled with empty pairs
(see `VarlenLayout`), whose results are cut off. Sizes grow by a quarter at most, so that at most a fifth of the
computed tokens is padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cerberank_models.backends.torch_stages import StageInput, TorchStages

Output = tuple[Tensor, Tensor]
Compute = Callable[[], Output]
Capture = Callable[[Compute], Compute]
"""Captures a computation on fixed tensors: calling the result runs it again and updates the same output tensors."""

LEAST_TOKENS = 256
TOKENS_PER_PAIR = 16
"""A graph of T tokens has room for T / 16 pairs: pairs with a shorter mean length need a larger graph."""
WARM_UP = 3
"""Runs before a capture, in which libraries choose kernels and allocate workspaces."""


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
    """Every stage in every size, captured at construction, the largest first so that the others reuse its memory."""

    def __init__(self, stages: TorchStages, sizes: Sequence[GraphSize], capture: Capture | None = None) -> None:
        """Capture every stage with `capture`; None captures CUDA graphs.

        Raises ValueError where attention pads: its shapes follow from the lengths and cannot be fixed.
        """
        if stages.kernel is None:
            raise ValueError("CUDA graphs need fp16 or bf16 on a GPU with variable-length attention")
        capture = capture or cuda_graphs()
        self._sizes = sorted(sizes)
        self._captured = {
            (stage, size): _CapturedStage(stages, stage, size, capture)
            for size in reversed(self._sizes)
            for stage in range(len(stages.config.stages))
        }

    def size_for(self, tokens: int, pairs: int) -> GraphSize | None:
        """The smallest size with room for so many tokens and pairs; None when there is none."""
        return next((size for size in self._sizes if size.tokens >= tokens and size.pairs >= pairs), None)

    def run(self, stage: int, size: GraphSize, inputs: StageInput) -> Output:
        """Run a stage as `TorchStages` does; the result stays valid when the next step runs."""
        return self._captured[stage, size](inputs)


class _CapturedStage:
    def __init__(self, stages: TorchStages, stage: int, size: GraphSize, capture: Capture) -> None:
        device, width = stages.device, stages.config.transformer.hidden_size
        # Any valid lengths will do for the capture: here, pairs of one token.
        offsets = torch.arange(size.pairs + 1, dtype=torch.int32, device=device)
        tokens = torch.zeros((2, size.tokens), dtype=torch.int32, device=device) if stage == 0 else None
        hidden = torch.zeros((size.tokens, width), dtype=stages.precision, device=device) if stage else None
        self._fixed = StageInput(offsets, tokens, hidden)
        self._replay = capture(lambda: stages(stage, self._fixed))

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
    """A capture that records CUDA graphs; they share one memory pool, because they never run at the same time."""
    pool = torch.cuda.graph_pool_handle()

    def capture(compute: Compute) -> Compute:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                compute()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            output = compute()

        def replay() -> Output:
            graph.replay()
            return output

        return replay

    return capture
