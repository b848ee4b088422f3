"""Piece `kernel`: compares variable-length attention with its definition in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cerberank_benchmarks.gpu.lab import Findings, Lab, Problem
from cerberank_models.network.varlen import VarlenAttention, VarlenLayout

TEXT = (
    "Relative error ||kernel - definition|| / ||definition||, the definition computed in float64 from the same inputs, "
    "over pairs of every length. Bitwise: pairs give the same bits when the others are in another order."
)
BOUND = {torch.float16: 2e-3, torch.bfloat16: 1.5e-2, torch.float32: 1e-5}
"""About four times the error of rounding the attention weights, the products and the result once each."""
WIDTHS = ((12, 32), (12, 64), (36, 64))
"""Number and width of attention heads: MiniLM, a base encoder, three stacked heads of CERBERUS."""
INNER = 10
"""Number of calls that are timed together, because a single call takes less time than launching and waiting."""
TAIL = 7
"""Number of empty pairs at the end, and of tokens without a pair, as in captured graphs."""


@dataclass(frozen=True, slots=True)
class _Inputs:
    query: Tensor
    key: Tensor
    value: Tensor
    lengths: Sequence[int]


def run(lab: Lab) -> Findings:
    """Rows for each precision and number of heads, with queries of all tokens and of the first tokens only."""
    dtypes = (torch.float16, torch.bfloat16) if lab.on_gpu else (lab.dtype,)
    for dtype in dtypes:
        for heads, width in WIDTHS:
            kernel, inputs = lab.attention(dtype, width), _inputs(lab, heads, width, dtype)
            for first in (False, True):
                got = _attend(kernel, inputs, first=first)
                error = relative_error(got, _definition(inputs, first=first))
                name = f"{str(dtype).removeprefix('torch.')}, {heads} heads of {width}, "
                name += "first tokens" if first else "all tokens"
                yield {
                    "case": name,
                    "pairs": len(inputs.lengths),
                    "relative error": error,
                    "bound": BOUND[dtype],
                    "bitwise": "yes" if _same_in_another_order(kernel, inputs, got, first=first) else "no",
                    "ms": 1000 * lab.seconds(_attention(kernel, inputs, first=first), inner=INNER),
                }
                if not error <= BOUND[dtype]:
                    yield Problem(f"kernel, {name}: relative error {error:.2g}, more than {BOUND[dtype]:g}")


def relative_error(got: Tensor, expected: Tensor) -> float:
    """||got - expected|| / ||expected||; NaN if any value is NaN."""
    return float((got.double() - expected).norm() / expected.norm())


def _inputs(lab: Lab, heads: int, width: int, dtype: torch.dtype) -> _Inputs:
    lengths = (1 + torch.randperm(lab.sizes.longest, generator=torch.Generator().manual_seed(lab.seed))).tolist()
    tokens = sum(lengths) + TAIL
    query, key, value = (lab.random(tokens, heads, width, dtype=dtype, seed=seed) for seed in (1, 2, 3))
    return _Inputs(query, key, value, lengths)


def _attend(kernel: VarlenAttention, inputs: _Inputs, *, first: bool) -> Tensor:
    """The attention of the pairs' own rows, through the layout that the backend uses, with an empty tail."""
    return _attention(kernel, inputs, first=first)()


def _attention(kernel: VarlenAttention, inputs: _Inputs, *, first: bool) -> Callable[[], Tensor]:
    """A function that only computes attention, for timing; offsets and queries are already on the device."""
    lengths, device = inputs.lengths, inputs.query.device
    offsets = torch.tensor([0, *lengths] + [0] * TAIL).cumsum(0).int().to(device)
    layout = VarlenLayout(offsets, max(lengths), kernel, len(inputs.query))
    if first:
        queries = layout.first(inputs.query)
        return lambda: layout.attend_first(queries, inputs.key, inputs.value, 0.0)[: len(lengths)]
    return lambda: layout.attend(inputs.query, inputs.key, inputs.value, 0.0)[: sum(lengths)]


def _definition(inputs: _Inputs, *, first: bool) -> Tensor:
    """softmax(q k / sqrt(d)) v in float64, pair by pair."""
    outs, start = [], 0
    for length in inputs.lengths:
        query, key, value = (part[start : start + length].double() for part in (inputs.query, inputs.key, inputs.value))
        logits = torch.einsum("qhd,khd->hqk", query[:1] if first else query, key) / query.shape[-1] ** 0.5
        outs.append(torch.einsum("hqk,khd->qhd", logits.softmax(-1), value))
        start += length
    return torch.cat(outs)


def _same_in_another_order(kernel: VarlenAttention, inputs: _Inputs, got: Tensor, *, first: bool) -> bool:
    sizes = [1] * len(inputs.lengths) if first else list(inputs.lengths)
    tail = len(inputs.query) - sum(inputs.lengths)
    query, key, value = (
        _reversed(part[:-tail], inputs.lengths, part[-tail:]) for part in (inputs.query, inputs.key, inputs.value)
    )
    turned = _Inputs(query, key, value, inputs.lengths[::-1])
    again = _attend(kernel, turned, first=first)
    return torch.equal(_reversed(again, sizes[::-1]), got)


def _reversed(packed: Tensor, sizes: Sequence[int], *after: Tensor) -> Tensor:
    """The parts of `packed` with these `sizes` in reverse order, followed by `after`."""
    parts = torch.split_with_sizes(packed, list(sizes))
    return torch.cat([*parts[::-1], *after])
