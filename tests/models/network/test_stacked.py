from __future__ import annotations

import pytest
import torch
from tests.models.network.varlen_oracle import varlen_oracle
from tests.tiny import LAYERS, cross_encoder, random_ranker

from cerberank_models.convert.from_hugging_face import ranker_config
from cerberank_models.network.heads import Head
from cerberank_models.network.layout import Layout, PackedLayout
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.network.stacked import StackedHeads, stackable
from cerberank_models.network.varlen import VarlenLayout

OFFSETS = torch.tensor([0, 5, 14, 17, 29], dtype=torch.int32)


def heads_of(ranker: RankingNetwork) -> list[Head]:
    return [head for head in ranker.heads if isinstance(head, Head)]


@pytest.mark.parametrize("logits", [1, 2])
@pytest.mark.parametrize("head_layers", [0, 1, 2])
@pytest.mark.parametrize("layout", [PackedLayout.of(OFFSETS), VarlenLayout(OFFSETS, 48, varlen_oracle, 29)])
def test_stacked_heads_equal_heads_one_by_one(layout: Layout, head_layers: int, logits: int) -> None:
    """Three different heads of 0, 1 or 2 layers give the same logits as one batched operation, in both layouts."""
    model = cross_encoder("bert")
    config = ranker_config(
        model.config,
        name="a",
        body_layers=LAYERS - head_layers,
        heads=3,
        logits=logits,
        encoding=random_ranker().config.encoding,
    )
    torch.manual_seed(3)
    ranker = RankingNetwork(config).eval()
    for parameter in ranker.heads.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    hidden = torch.randn(29, config.transformer.hidden_size)
    with torch.no_grad():
        expected = ranker.heads(hidden, layout)
        got = StackedHeads(heads_of(ranker))(hidden, layout)
    assert got.shape == (4, 3)
    assert (expected[:, 0] - expected[:, 1]).abs().max() > 0.1
    assert (got - expected).abs().max() <= 2e-5


def test_the_network_keeps_its_own_heads() -> None:
    """Stacking copies: the ranker's weights and their names are untouched."""
    ranker = random_ranker()
    before = {name: value.clone() for name, value in ranker.state_dict().items()}
    StackedHeads(heads_of(ranker))
    after = ranker.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize(
    ("part", "stacks"),
    [
        (torch.nn.Linear(4, 4), True),
        (torch.nn.LayerNorm(4), True),
        (torch.nn.Linear(4, 4, bias=False), False),
        (torch.nn.RMSNorm(4), False),
    ],
)
def test_only_what_can_be_stacked_is(part: torch.nn.Module, stacks: bool) -> None:
    """A head with any other kind of weight is not stacked: it would get the first head's weight."""
    head = random_ranker().heads[0]
    assert stackable(head)
    head.add_module("more", part)
    assert stackable(head) == stacks
