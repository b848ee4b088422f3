"""The bounds of `bounds.py` are tight: what a small mistake does to a score lies far beyond them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.bounds import HIDDEN, LOGITS, PROBABILITIES
from tests.tiny import random_pairs, random_ranker

from cerberank_models.network.bodies.post_norm import PostNormLayer
from cerberank_models.network.layout import PaddedLayout
from cerberank_models.network.ranking_network import RankingNetwork

FAR = 10
"""Each mistake is at least so many times the bound."""
PAIRS = random_pairs([5, 30, 3, 12, 9, 31, 30, 48])


def logits(ranker: RankingNetwork) -> torch.Tensor:
    with torch.no_grad():
        return ranker(*(torch.from_numpy(array) for array in (PAIRS.token_ids, PAIRS.type_ids, PAIRS.offsets)))


def layer(ranker: RankingNetwork, index: int) -> PostNormLayer:
    module = ranker.body[index]
    assert isinstance(module, PostNormLayer)
    return module


def scale_the_queries(ranker: RankingNetwork) -> None:
    layer(ranker, 1).query.weight.mul_(1.01)


def shift_a_bias(ranker: RankingNetwork) -> None:
    layer(ranker, 2).down.bias[0] += 0.01


def swap_two_attention_heads(ranker: RankingNetwork) -> None:
    value = layer(ranker, 0).value.weight
    value.copy_(torch.cat([value[8:16], value[:8], value[16:]]))


@pytest.mark.parametrize("mistake", [scale_the_queries, shift_a_bias, swap_two_attention_heads])
def test_a_mistake_in_a_layer_is_seen(mistake: Callable[[RankingNetwork], None]) -> None:
    """An attention scale one percent off, one of 32 biases off by 0.01, two attention heads in each other's place."""
    right, wrong = random_ranker(), random_ranker()
    with torch.no_grad():
        mistake(wrong)
    difference = logits(wrong) - logits(right)
    assert difference.abs().max() > FAR * LOGITS
    assert (logits(wrong).sigmoid() - logits(right).sigmoid()).abs().max() > FAR * PROBABILITIES


def test_any_two_candidates_that_change_places_are_seen() -> None:
    """The two pairs that lie nearest to each other, too: in at least one head."""
    scores = logits(random_ranker()).sigmoid()
    nearest = min((one - other).abs().max() for row, one in enumerate(scores) for other in scores[:row])
    assert nearest > FAR * PROBABILITIES


def test_hidden_states_of_half_precision_are_seen() -> None:
    """One layer whose weights went through bfloat16 differs by far more than order of addition explains."""
    right, wrong = layer(random_ranker(), 0), layer(random_ranker().bfloat16().float(), 0)
    hidden = torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        layout = PaddedLayout(torch.ones((2, 16), dtype=torch.bool))
        assert (right(hidden, layout) - wrong(hidden, layout)).abs().max() > FAR * HIDDEN
