"""Scores from vectors are those that the network computes, in whatever blocks they are computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.bounds import LOGITS, PROBABILITIES
from tests.first_stages import SHAPES, first_stage_config, ranker_of, scorer_weights, vectors
from tests.text_rankers import texts

from cerberank_models.first_stage import scorer
from cerberank_models.first_stage.scorer import FirstStageScorer, widened
from cerberank_models.network.text_ranker import Side

HALF = 2.0**-11
"""The relative error of a number that is rounded to float16."""


def rounded(side: Side, shape: dict[str, Any]) -> Side:
    """The network's input for the same float16 numbers: instead of many tokens, their rounded mean."""
    one = shape.get("token_ranker") == "twin"
    tokens, offsets = (side.mean(), torch.arange(len(side.first) + 1)) if one else (side.tokens, side.offsets)
    return Side(side.first.half().float(), tokens.half().float(), offsets)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@torch.inference_mode()
def test_the_network_gives_the_same_scores(shape: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every combination of rankers agrees with TextRanker.score (dot: with a cosine), also in many small blocks."""
    ranker, config = ranker_of(shape), first_stage_config(**shape)
    lengths = [[length] for length in (2, 9, 16, 5, 5, 12)]
    question, documents = ranker.alone(texts([[6]])), ranker.alone(texts(lengths))
    tested = FirstStageScorer(config, scorer_weights(ranker, config))
    question_vector, document_vectors = vectors(question, shape)[0], vectors(documents, shape)
    got = tested(question_vector, document_vectors)
    if shape.get("token_ranker") == "dot":
        cosine = torch.nn.functional.cosine_similarity(question.mean(), documents.mean())
        assert got == pytest.approx((1 + cosine.double().numpy()) / 2, abs=2 * HALF)  # two rounded vectors of length 1
        assert np.ptp(got) > 20 * HALF, "the candidates must lie further apart than the bound"
    else:
        many = question.select(torch.zeros(len(lengths), dtype=torch.int64))
        expected = ranker.score(rounded(many, shape), rounded(documents, shape)).scores.double().numpy()
        assert np.log(got) - np.log1p(-got) == pytest.approx(expected, abs=LOGITS)
        assert np.ptp(expected) > 100 * LOGITS, "the candidates must lie further apart than the bound"
    monkeypatch.setattr(scorer, "BLOCK", 50)
    assert tested(question_vector, document_vectors) == pytest.approx(got, abs=PROBABILITIES)
    assert tested(question_vector, document_vectors[::-1])[::-1] == pytest.approx(got, abs=PROBABILITIES)
    assert tested(question_vector, []).shape == (0,)


def test_every_number_is_widened_exactly() -> None:
    """All float16 numbers, infinities and NaN included, are what NumPy converts them to."""
    numbers = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = numbers[np.isfinite(numbers)]
    for given in (finite, numbers, numbers[:0]):
        np.testing.assert_array_equal(widened(given), given.astype(np.float32))
    assert np.array_equal(np.signbit(widened(finite)), np.signbit(finite))


def test_wrong_weights_and_vectors_are_refused() -> None:
    """A missing, an unknown and a misshapen weight are named; so is the size of a foreign vector."""
    config = first_stage_config(token_ranker="twin")
    weights = scorer_weights(ranker_of({"token_ranker": "twin"}), config)
    wrong = {**weights, "first_ranker.dense.bias": weights["token_ranker.dense.bias"]}
    wrong["token_ranker.output.weight"] = wrong["token_ranker.output.weight"].T
    del wrong["token_ranker.dense.bias"]
    with pytest.raises(ValueError, match=r"first_ranker.dense.bias, token_ranker.dense.bias, token_ranker.output.wei"):
        FirstStageScorer(config, wrong)
    tested = FirstStageScorer(config, weights)
    with pytest.raises(ValueError, match="has 31 numbers, this first stage's have 32"):
        tested(np.zeros(32, np.float16), [np.zeros(31, np.float16)])
    colbert = FirstStageScorer(first_stage_config(token_ranker="colbert"), {})
    for size in (0, 12):
        with pytest.raises(ValueError, match=f"has {size} numbers, this first stage's have 0 and a multiple of 8"):
            colbert(np.zeros(8, np.float16), [np.zeros(size, np.float16)])
