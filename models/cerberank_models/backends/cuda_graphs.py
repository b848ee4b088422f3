"""Stages captured as CUDA graphs for fixed numbers of tokens: one launch a stage instead of a hundred.

A step's pairs are copied into the smallest bucket that holds them; what is left over is filled by pairs without
tokens (see `VarlenLayout`) and cut off again. Buckets grow by a quarter, so that at most a fifth is computed in vain.
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
"""Makes a computation on fixed tensors repeatable: the result runs it again and gives the same tensors, renewed."""

LEAST_TOKENS = 256
TOKENS_PER_PAIR = 16
"""A bucket of T tokens has room for T / 16 pairs: a shorter mean length takes a larger bucket."""
WARM_UP = 3
"""Runs before a capture, in which libraries choose kernels and allocate workspaces."""


@dataclass(frozen=True, order=True, slots=True)
class Bucket:
    """Room for so many tokens and pairs."""

    tokens: int
    pairs: int


def bucket_grid(largest: int) -> tuple[Bucket, ...]:
    """Buckets up to the first that holds `largest` tokens, four to each doubling.

    >>> [bucket.tokens for bucket in bucket_grid(1000)]
    [256, 320, 384, 448, 512, 640, 768, 896, 1024]
    """
    buckets = [Bucket(LEAST_TOKENS, LEAST_TOKENS // TOKENS_PER_PAIR)]
    while buckets[-1].tokens < largest:
        tokens = buckets[-1].tokens
        tokens += 2 ** (tokens.bit_length() - 3)
        buckets.append(Bucket(tokens, tokens // TOKENS_PER_PAIR))
    return tuple(buckets)


class CapturedStages:
    """Every stage in every bucket, captured at construction, the largest first so that the others reuse its memory."""

    def __init__(self, stages: TorchStages, buckets: Sequence[Bucket], capture: Capture | None = None) -> None:
        """Capture by `capture`, None as CUDA graphs.

        Raises ValueError where attention pads: its shapes follow from the lengths and cannot be fixed.
        """
        if stages.kernel is None:
            raise ValueError("CUDA graphs need fp16 or bf16 on a GPU with variable-length attention")
        capture = capture or cuda_graphs()
        self._buckets = sorted(buckets)
        self._captured = {
            (stage, bucket): _CapturedStage(stages, stage, bucket, capture)
            for bucket in reversed(self._buckets)
            for stage in range(len(stages.config.stages))
        }

    def bucket(self, tokens: int, pairs: int) -> Bucket | None:
        """The smallest bucket with room; None when there is none."""
        return next((room for room in self._buckets if room.tokens >= tokens and room.pairs >= pairs), None)

    def run(self, stage: int, bucket: Bucket, inputs: StageInput) -> Output:
        """As `TorchStages`; the result stays valid when the next step runs."""
        return self._captured[stage, bucket](inputs)


class _CapturedStage:
    def __init__(self, stages: TorchStages, stage: int, bucket: Bucket, capture: Capture) -> None:
        device, width = stages.device, stages.config.transformer.hidden_size
        # Any valid lengths will do for the capture: here, pairs of one token.
        offsets = torch.arange(bucket.pairs + 1, dtype=torch.int32, device=device)
        tokens = torch.zeros((2, bucket.tokens), dtype=torch.int32, device=device) if stage == 0 else None
        hidden = torch.zeros((bucket.tokens, width), dtype=stages.precision, device=device) if stage else None
        self._fixed = StageInput(offsets, tokens, hidden)
        self._replay = capture(lambda: stages(stage, self._fixed))

    def __call__(self, inputs: StageInput) -> Output:
        pairs = len(inputs.offsets)
        self._fixed.offsets[:pairs].copy_(inputs.offsets, non_blocking=True)
        self._fixed.offsets[pairs:].copy_(inputs.offsets[-1], non_blocking=True)  # on the device: no waiting
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
    """Record CUDA graphs that share one pool of memory: they never run at the same time."""
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
