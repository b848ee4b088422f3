"""Piece `latency`: one question of 100, 500 and 1,000 candidates as one step, without tokenising."""

from __future__ import annotations

from functools import partial

import numpy as np

from cerberank_benchmarks.gpu.ceilings import matmul_rate
from cerberank_benchmarks.gpu.lab import Findings, Lab, Problem
from cerberank_benchmarks.gpu.networks import (
    BASE,
    LARGE,
    MINI,
    THREE_HEADS,
    config_of,
    equal_pairs,
    operations,
    random_ranker,
)
from cerberank_benchmarks.gpu.reference import BOUND
from cerberank_models.rank_pairs import rank_pairs

TEXT = (
    "Milliseconds of one question as one step, without tokenising, launched kernel by kernel (eager) and as captured "
    "graphs, in turns. The share is of the matmul rate measured before; padding of a graph takes time and counts as no "
    "operation."
)


def run(lab: Lab) -> Findings:
    """A row for each network, number of candidates and form, and one for the capture of each network."""
    ceiling = matmul_rate(lab)
    for shape in (THREE_HEADS, MINI, BASE, LARGE):
        # The two forms own their weights; memory is counted between the opening of the one and of the other.
        before = lab.taken_bytes()
        eager = lab.backend(random_ranker(lab, shape))
        plain, started = lab.taken_bytes(), lab.clock()
        captured = lab.backend(random_ranker(lab, shape), graph_tokens=max(lab.sizes.counts) * lab.sizes.tokens)
        lab.synchronise()
        seconds = lab.clock() - started
        graph_bytes = lab.taken_bytes() - plain - (plain - before)
        yield {"network": shape.name, "capture, s": seconds, "capture, MB": graph_bytes / 1e6}

        for count in lab.sizes.counts:
            pairs = equal_pairs(lab, count)
            scores = {name: rank_pairs(backend, pairs).scores for name, backend in (("e", eager), ("g", captured))}
            times = lab.times(
                {"eager": partial(rank_pairs, eager, pairs), "graphs": partial(rank_pairs, captured, pairs)}
            )
            work = operations(config_of(lab, shape), count, lab.sizes.tokens)
            for form, values in times.items():
                median = float(np.median(values))
                yield {
                    "network": shape.name,
                    "candidates": count,
                    "form": form,
                    "ms": 1000 * median,
                    "p95 ms": 1000 * float(np.quantile(values, 0.95)),
                    "pairs/s": count / median,
                    "TFLOP/s": work / median / 1e12,
                    "share of the matmul rate": work / median / ceiling,
                }
            difference = float(np.abs(scores["e"] - scores["g"]).max())
            if not difference <= BOUND[lab.precision]:
                yield Problem(f"{shape.name}, {count} candidates: graphs differ from eager by {difference:.2g}")
