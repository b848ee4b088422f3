"""Absorbed heads compute what the heads compute."""

from __future__ import annotations

import pytest
import torch
from tests.tiny import padded, random_pairs, random_ranker

from cerberank_models.network.absorbed import AbsorbedHeads
from cerberank_models.network.layout import Layout, PackedLayout, PaddedLayout
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.network.varlen import VarlenLayout

LENGTHS = [5, 30, 3, 12, 1, 31, 30, 48]


def layouts() -> list[Layout]:
    pairs = random_pairs(LENGTHS)
    return [PackedLayout.of(torch.from_numpy(pairs.offsets)), PaddedLayout(padded(pairs)[2])]


def hidden_for(layout: Layout, ranker: RankingNetwork) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    packed = torch.randn(sum(LENGTHS), ranker.config.transformer.hidden_size, generator=generator)
    if isinstance(layout, PackedLayout):
        return packed
    return PackedLayout.of(torch.from_numpy(random_pairs(LENGTHS).offsets)).pad(packed)


@pytest.mark.parametrize(
    ("family", "body_layers"), [("bert", 3), ("bert", 2), ("bert", 1), ("electra", 3), ("electra", 1), ("albert", 3)]
)
@pytest.mark.parametrize("layout", layouts(), ids=lambda layout: type(layout).__name__)
def test_the_same_logits(layout: Layout, family: str, body_layers: int) -> None:
    """One, two or three layers a head, packed and padded, pairs of one token too: within 1e-4 of the plain heads."""
    ranker = random_ranker(family=family, body_layers=body_layers, heads=3, exits=())
    hidden = hidden_for(layout, ranker)
    with torch.no_grad():
        plain = ranker.heads(hidden, layout)
        absorbed = AbsorbedHeads(ranker.heads)(hidden, layout)
    assert plain.std() > 0.1
    assert (plain - absorbed).abs().max() <= 1e-4


def test_a_layout_that_cannot_be_padded_is_refused() -> None:
    """The variable-length layout is refused, because its kernel's attention heads are too narrow."""
    ranker = random_ranker()
    layout = VarlenLayout(torch.tensor([0, 2], dtype=torch.int32), 2, lambda *arguments: arguments[0], 2)
    with pytest.raises(TypeError, match="VarlenLayout"):
        AbsorbedHeads(ranker.heads)(torch.zeros(2, 32), layout)
