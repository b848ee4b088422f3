from __future__ import annotations

import pytest
import torch
from tests.bounds import PRODUCTS, rounding
from tests.tiny import random_pairs, random_ranker
from torch import Tensor

from cerberank_models.network.layout import PackedLayout
from cerberank_models.network.ranking_network import RankingNetwork

BODY = rounding(3 * PRODUCTS)
"""Hidden states behind three layers."""
LINEAR = ("query", "key", "value", "attention_output", "attention_norm", "up", "down", "output_norm")


def names(prefix: str, modules: tuple[str, ...]) -> list[str]:
    return [f"{prefix}.{module}.{kind}" for module in modules for kind in ("weight", "bias")]


@pytest.mark.parametrize("family", ["bert", "electra", "roberta"])
def test_the_checkpoint_format_names_every_weight_as_ever(family: str) -> None:
    """The list of keys is fixed, so that earlier and later versions can read each other's checkpoints."""
    expected = [f"embeddings.{table}.weight" for table in ("tokens", "positions", "types")]
    expected += names("embeddings", ("norm", "project") if family == "electra" else ("norm",))
    for layer in range(2):
        expected += names(f"body.{layer}", LINEAR)
    expected += names("exits.0", ("dense.0", "dense.1", "output"))
    for head in range(2):
        for layer in range(2):
            expected += names(f"heads.{head}.layers.{layer}", LINEAR)
        expected += names(f"heads.{head}.classifier", ("dense", "output"))
    ranker = random_ranker(family=family, body_layers=2, heads=2, exits=(1,))
    assert list(ranker.state_dict()) == expected
    assert [name for name, _ in ranker.named_parameters()] == expected


def test_layers_that_all_depths_share_are_named_once() -> None:
    """ALBERT: one layer of the body, and one of each head although a head is two layers deep."""
    ranker = random_ranker(family="albert", body_layers=2, heads=2, exits=(1,))
    layers = [name for name in ranker.state_dict() if name.startswith("body.") or ".layers." in name]
    assert layers == names("body.0", LINEAR) + names("heads.0.layers.0", LINEAR) + names("heads.1.layers.0", LINEAR)


def hidden_after_body(ranker: RankingNetwork) -> Tensor:
    pairs = random_pairs([5, 30, 3, 12])
    arrays = (pairs.token_ids, pairs.type_ids, pairs.offsets)
    token_ids, type_ids, offsets = map(torch.from_numpy, arrays)
    layout = PackedLayout.of(offsets)
    with torch.no_grad():
        return ranker.encoder.run(ranker.encoder.embed(token_ids, type_ids, layout), layout, 0, 3)


def test_merged_projections_compute_the_same() -> None:
    """One product for query, key and value gives what three give, up to the order of additions."""
    merged = random_ranker()
    merged.encoder.merge_projections()
    assert not [name for name in merged.state_dict() if name.startswith("body.") and ".query." in name]
    assert (hidden_after_body(merged) - hidden_after_body(random_ranker())).abs().max() <= BODY
