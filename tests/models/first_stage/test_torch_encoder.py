"""Vectors of texts on PyTorch are the parts that the text ranker's own encoding gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.bounds import HIDDEN
from tests.first_stages import SHAPES, first_stage_config, network_of, ranker_of, vectors
from tests.tiny import bert_tokenizer

from cerberank_models.encoding import concat_pairs
from cerberank_models.first_stage.torch_encoder import TorchEncoder
from cerberank_models.network.texts import Texts
from cerberank_models.text_encoding import TextEncoder

HALF = 2.0**-11
"""The relative error of a number that is rounded to float16."""
BOUND = 2 * HALF + 2 * HIDDEN
"""Two layers, then numbers of up to 4 rounded to float16, of which half a step is 2 * HALF."""
TEXTS = ["how tall is the tower", "", "b", "what do bees make honey from in the city of paris ?", "a b", "c d e a"]


def encoded(config: Any) -> Any:
    encoder = TextEncoder(bert_tokenizer(), config)
    return concat_pairs([encoder.questions(["who wrote carmen ?"]), encoder.candidates(TEXTS)])


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_vectors_are_the_text_rankers(shape: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part of every shape agrees with TextRanker.alone, in one block and in many."""
    ranker, config = ranker_of(shape), first_stage_config(**shape)
    texts = encoded(config)
    ids, offsets = torch.from_numpy(texts.token_ids), torch.from_numpy(texts.offsets)
    with torch.inference_mode():
        expected = vectors(ranker.alone(Texts(ids, offsets, torch.arange(len(texts) + 1))), shape)
    backend = TorchEncoder(network_of(ranker, config))
    for got in (backend.encode(texts), [backend.encode(texts.select(np.array([row])))[0] for row in range(len(texts))]):
        for one, other in zip(got, expected, strict=True):
            assert one.dtype == np.float16
            assert one.astype(np.float32) == pytest.approx(other.astype(np.float32), abs=BOUND)
    assert backend.encode(texts.select(np.array([], dtype=np.int64))) == []


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_half_precisions_are_near(shape: dict[str, Any], precision: str) -> None:
    """The cast network's vectors point where fp32's do."""
    ranker, config = ranker_of(shape), first_stage_config(**shape)
    texts = encoded(config)
    exact = TorchEncoder(network_of(ranker, config)).encode(texts)
    rough = TorchEncoder(network_of(ranker, config), precision=precision)
    assert rough.precision == precision
    for one, other in zip(rough.encode(texts), exact, strict=True):
        left, right = one.astype(np.float64), other.astype(np.float64)
        cosine = left @ right / np.linalg.norm(left) / np.linalg.norm(right)
        assert cosine > 0.99
        assert (left != right).any()
