"""Piece `steps`: tokens per second by the size of a step, and the smallest step that reaches 95 % of the best rate."""

from __future__ import annotations

from functools import partial

from cerberank_benchmarks.gpu.ceilings import matmul_rate
from cerberank_benchmarks.gpu.lab import Findings, Lab
from cerberank_benchmarks.gpu.networks import MINI, THREE_HEADS, config_of, equal_pairs, operations, random_ranker
from cerberank_models.backends.torch_backend import GRAPH_TOKENS
from cerberank_models.rank_pairs import rank_pairs

TEXT = "One step of so many tokens, computed without tokenising, with graphs up to the backend's default size."
ENOUGH = 0.95
"""Share of the best rate from which on a larger step is not worth its latency."""


def run(lab: Lab) -> Findings:
    """Rows of each shape: one per step, then the smallest step that reaches `ENOUGH`."""
    for shape in (MINI, THREE_HEADS):
        ceiling = matmul_rate(lab)
        backend = lab.backend(random_ranker(lab, shape), graph_tokens=min(GRAPH_TOKENS, lab.sizes.graph_tokens))
        rates: dict[int, float] = {}
        for step in lab.sizes.steps:
            pairs = equal_pairs(lab, max(1, step // lab.sizes.tokens))
            seconds = lab.seconds(partial(rank_pairs, backend, pairs))
            rates[step] = pairs.tokens / seconds
            work = operations(config_of(lab, shape), len(pairs), lab.sizes.tokens)
            yield {
                "network": shape.name,
                "tokens": pairs.tokens,
                "ms": 1000 * seconds,
                "tokens/s": rates[step],
                "pairs/s": len(pairs) / seconds,
                "share of the matmul rate": work / seconds / ceiling,
            }
        best = max(rates.values())
        enough = min(step for step, rate in rates.items() if rate >= ENOUGH * best)
        yield {"network": shape.name, f"smallest step with {ENOUGH:.0%}": enough, "best tokens/s": best}
