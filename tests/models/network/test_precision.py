"""The last linear layers stay in float32 when a ranker is cast to half precision, in every form that heads run in."""

from __future__ import annotations

import pytest
import torch
from tests.models.network.varlen_oracle import varlen_oracle
from tests.tiny import random_ranker
from torch import nn

from cerberank_models.network.absorbed import AbsorbedHeads
from cerberank_models.network.heads import Head
from cerberank_models.network.layout import Layout, PackedLayout
from cerberank_models.network.precision import LastLinear, in_precision
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.network.stacked import StackedHeads
from cerberank_models.network.varlen import VarlenLayout

HALVES = (torch.float16, torch.bfloat16)
PAIRS, TOKENS = 150, 8
OFFSETS = torch.arange(0, (PAIRS + 1) * TOKENS, TOKENS, dtype=torch.int32)


def confident(ranker: RankingNetwork) -> RankingNetwork:
    """The same ranker, with logits around -8."""
    for part in ranker.modules():
        if isinstance(part, LastLinear):
            part.bias.data = torch.tensor([4.0, -4.0][: len(part.bias)]) if len(part.bias) > 1 else torch.tensor([-8.0])
    return ranker


def form(name: str, ranker: RankingNetwork) -> tuple[nn.Module, Layout]:
    if name == "stacked":
        heads = StackedHeads([head for head in ranker.heads if isinstance(head, Head)])
        return heads, VarlenLayout(OFFSETS, TOKENS, varlen_oracle, PAIRS * TOKENS)
    layout = PackedLayout.of(OFFSETS)
    if name == "exit":
        return ranker.exits[0], layout
    return (AbsorbedHeads(ranker.heads) if name == "absorbed" else ranker.heads), layout


@pytest.mark.parametrize("name", ["plain", "exit"])
def test_autocast_leaves_the_last_layer_in_float32(name: str) -> None:
    """Training in bf16 computes everything else in it, and gets logits that differ as those of serving do."""
    torch.manual_seed(2)
    network, layout = form(name, confident(random_ranker()))
    last = next(part for part in network.modules() if isinstance(part, LastLinear))
    types: list[torch.dtype] = []
    last.register_forward_hook(lambda module, inputs, output: types.extend([inputs[0].dtype, output.dtype]))
    hidden = torch.randn(PAIRS * TOKENS, last.in_features, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = network(hidden, layout)
    assert types == [torch.bfloat16, torch.float32]
    assert len(logits.reshape(PAIRS, -1)[:, 0].unique()) >= 0.97 * PAIRS
    logits.sum().backward()
    assert last.weight.grad.dtype == torch.float32


def test_the_last_layer_has_a_form_on_a_device_without_autocast() -> None:
    """On the meta device shapes are checked without weights."""
    assert LastLinear(4, 2, device="meta")(torch.empty(3, 4, device="meta")).shape == (3, 2)


@pytest.mark.parametrize("precision", HALVES, ids=str)
def test_only_the_last_linear_layers_keep_their_weights(precision: torch.dtype) -> None:
    """Two exits and three heads keep theirs to the last bit; everything else has the half precision, rounded once."""
    ranker = random_ranker()
    before = {name: value.clone() for name, value in ranker.state_dict().items()}
    assert in_precision(ranker, precision) is ranker
    after = ranker.state_dict()
    kept = {name.rpartition(".")[0] for name, value in after.items() if value.dtype == torch.float32}
    assert kept == {"exits.0.output", "exits.1.output", *(f"heads.{k}.classifier.output" for k in range(3))}
    assert list(after) == list(before)
    assert all(torch.equal(value, before[name].to(value.dtype)) for name, value in after.items())


def test_buffers_of_whole_numbers_stay_what_they_are() -> None:
    """As in `Module.to`: only floating point is cast."""
    module = nn.Linear(2, 2)
    module.register_buffer("ids", torch.arange(3))
    module.register_buffer("scale", torch.ones(3))
    cast = in_precision(module, torch.float16)
    assert (cast.ids.dtype, cast.scale.dtype, cast.weight.dtype) == (torch.int64, torch.float16, torch.float16)


@pytest.mark.parametrize("precision", HALVES, ids=str)
@pytest.mark.parametrize("name", ["plain", "absorbed", "stacked", "exit"])
def test_confident_candidates_do_not_tie(name: str, precision: torch.dtype) -> None:
    """Nearly all of 150 pairs with logits around -8 differ; with the last layer in half precision too, more tie."""
    torch.manual_seed(2)
    ranker = confident(random_ranker())
    hidden = torch.randn(PAIRS * TOKENS, ranker.config.transformer.hidden_size)
    distinct = []
    with torch.inference_mode():
        for cast in (in_precision, lambda module, to: module.to(to)):
            network, layout = form(name, cast(ranker, precision))
            logits = network(hidden.to(precision), layout).reshape(PAIRS, -1)
            assert logits.dtype == torch.float32
            distinct.append(len(logits[:, 0].unique()))
    assert distinct[0] >= 0.97 * PAIRS
    assert distinct[1] < distinct[0]
