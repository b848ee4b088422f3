"""Pieces `parity` and `invariance`: the effect of half precision, and of other pairs in the batch, on scores."""

from __future__ import annotations

import numpy as np

from cerberank_benchmarks.gpu.lab import Findings, Lab, Problem
from cerberank_benchmarks.gpu.networks import MINI, THREE_HEADS, Shape, mixed_pairs, random_ranker
from cerberank_models.backends.stage_contract import Scores
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.calibration import log_odds
from cerberank_models.encoding import EncodedPairs, concat_pairs
from cerberank_models.rank_pairs import rank_pairs

PARITY = (
    "Half precision against fp32 with the same weights on the same device, and captured graphs against the same "
    "precision without them: errors of the score's logit, questions with the same first candidate, distinct scores. "
    "The weights are random and have no outliers, so that trained networks err more."
)
INVARIANCE = (
    "The scores of one question's candidates, computed together with others, against the scores that they have in a "
    "batch of their own: the largest difference of probabilities, and the share that is equal to the last bit."
)
SHAPES = (MINI, THREE_HEADS)
BOUND = {"fp32": 1e-3, "fp16": 0.02, "bf16": 0.1}
"""Largest differences in probability that do not count as a problem. bf16 rounds eight times as coarsely as fp16."""
OTHERS = (1, 7, 63, 499)


def parity(lab: Lab) -> Findings:
    """A row for each shape, precision and form; a difference above the bound is a problem."""
    precisions = ("fp16", "bf16")
    for shape in SHAPES:
        questions = [mixed_pairs(lab, lab.sizes.candidates, seed=seed) for seed in range(lab.sizes.questions)]
        exact = _all_scores(lab.backend(random_ranker(lab, shape), precision="fp32"), questions)
        for precision in precisions:
            plain = _all_scores(lab.backend(random_ranker(lab, shape), precision=precision), questions)
            yield from _compared(shape, precision, "fp32", plain, exact)
            tokens = max(question.tokens for question in questions)
            captured = lab.backend(random_ranker(lab, shape), precision=precision, graph_tokens=tokens)
            yield from _compared(shape, f"{precision}, graphs", precision, _all_scores(captured, questions), plain)


def invariance(lab: Lab) -> Findings:
    """A row for each shape, form and composition of the batch."""
    for shape in SHAPES:
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


def _all_scores(backend: TorchBackend, questions: list[EncodedPairs]) -> list[Scores]:
    keep_all = backend.config.drop_policy(0.0)
    return [rank_pairs(backend, question, keep_all).scores for question in questions]


def _compared(shape: Shape, form: str, by: str, got: list[Scores], expected: list[Scores]) -> Findings:
    errors = np.concatenate([np.abs(log_odds(one) - log_odds(two)) for one, two in zip(got, expected, strict=True)])
    difference = float(max(np.abs(one - two).max() for one, two in zip(got, expected, strict=True)))
    yield {
        "network": shape.name,
        "form": form,
        "against": by,
        "largest logit error": float(errors.max()),
        "mean logit error": float(errors.mean()),
        "spread of logits": float(np.std(np.concatenate([log_odds(scores) for scores in expected]))),
        "largest difference": difference,
        "same first": f"{sum(one.argmax() == two.argmax() for one, two in zip(got, expected, strict=True))}"
        f" of {len(got)}",
        "distinct scores": f"{sum(len(np.unique(scores)) for scores in got)} of {sum(map(len, got))}",
        "bitwise": "yes" if all(np.array_equal(one, two) for one, two in zip(got, expected, strict=True)) else "no",
    }
    bound = BOUND[form.partition(",")[0]]
    if not difference <= bound:
        yield Problem(f"{shape.name}: {form} differs from {by} by {difference:.2g}, more than {bound:g}")
