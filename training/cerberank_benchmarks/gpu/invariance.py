"""Piece `invariance`: the effect of other pairs in the batch on scores."""

from __future__ import annotations

import numpy as np

from cerberank_benchmarks.gpu.lab import Findings, Lab, Problem
from cerberank_benchmarks.gpu.networks import MINI, THREE_HEADS, mixed_pairs, random_ranker
from cerberank_benchmarks.gpu.reference import BOUND
from cerberank_models.encoding import concat_pairs
from cerberank_models.rank_pairs import rank_pairs

TEXT = (
    "The scores of one question's candidates, computed together with others, against the scores that they have in a "
    "batch of their own: the largest difference of probabilities, and the share that is equal to the last bit."
)
OTHERS = (1, 63, 499)


def run(lab: Lab) -> Findings:
    """A row for each shape, form and composition of the batch."""
    for shape in (MINI, THREE_HEADS):
        pairs = mixed_pairs(lab, min(8, lab.sizes.candidates))
        for form, graph_tokens in (("eager", 0), ("graphs", lab.sizes.graph_tokens)):
            backend = lab.backend(random_ranker(lab, shape), graph_tokens=graph_tokens)
            alone = rank_pairs(backend, pairs).scores
            for count in (each for each in OTHERS if each <= 2 * lab.sizes.candidates):
                others = mixed_pairs(lab, count, seed=count)
                for place, batch, rows in (
                    ("first", concat_pairs([pairs, others]), slice(0, len(pairs))),
                    ("last", concat_pairs([others, pairs]), slice(count, None)),
                ):
                    got = rank_pairs(backend, batch).scores[rows]
                    difference = float(np.abs(got - alone).max())
                    yield {
                        "network": shape.name,
                        "form": form,
                        "other pairs": count,
                        "place": place,
                        "largest difference": difference,
                        "bitwise equal": float((got == alone).mean()),
                    }
                    if not difference <= BOUND[lab.precision]:
                        yield Problem(f"{shape.name}, {form}: {count} other pairs move a score by {difference:.2g}")
