"""Our networks against Hugging Face's own, and exact shortcuts against the full computation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.bounds import LOGITS
from tests.tiny import LAYERS, cross_encoder, forward_padded, padded, random_pairs, random_ranker
from torch import Tensor

from cerberank_models.backends.stage_contract import combine
from cerberank_models.config import EncodingConfig
from cerberank_models.convert.from_hugging_face import load_weights, ranker_config
from cerberank_models.network.layout import GROUP, PackedLayout, PaddedLayout
from cerberank_models.network.ranking_network import RankingNetwork

LENGTHS = [5, 9, 3, 12, 9]
BIASES = ("attention_bias", "classifier_bias", "mlp_bias", "norm_bias")
FAMILIES: list[tuple[str, dict[str, object]]] = [
    ("albert", {}),
    ("bert", {}),
    ("distilbert", {}),
    ("electra", {}),
    ("electra", {"embedding_size": 32}),
    ("modernbert", {}),
    ("modernbert", {"classifier_pooling": "mean", **dict.fromkeys(BIASES, True)}),
    ("roberta", {}),
    ("xlm-roberta", {}),
]


def tensors(lengths: list[int], *, types: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    pairs = random_pairs(lengths, types=types)
    return torch.from_numpy(pairs.token_ids), torch.from_numpy(pairs.type_ids), torch.from_numpy(pairs.offsets)


@pytest.mark.parametrize("head_layers", [1, 2, LAYERS])
@pytest.mark.parametrize(("family", "changes"), FAMILIES)
@pytest.mark.parametrize("labels", [1, 2])
def test_logits_equal_hugging_face(family: str, changes: dict[str, object], head_layers: int, labels: int) -> None:
    """B_{n-h} kH_h of a sequence classifier gives its logits, in every head and both layouts.

    Norms and biases are random too, so that none may stand in another's place.
    """
    model = cross_encoder(family, num_labels=labels, **changes)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    config = ranker_config(
        model.config,
        name="copy",
        body_layers=LAYERS - head_layers,
        heads=2,
        logits=labels,
        encoding=EncodingConfig(max_length=48, question_length=16),
    )
    ranker = RankingNetwork(config).eval()
    load_weights(ranker, model.state_dict())
    types = config.transformer.type_vocab_size
    pairs = random_pairs(LENGTHS, types=types)
    ids, type_ids, mask = padded(pairs, pad=model.config.pad_token_id)
    typed = {"token_type_ids": type_ids} if config.transformer.token_types else {}
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask.long(), **typed).logits
        expected = logits[:, 0] if labels == 1 else logits[:, 1] - logits[:, 0]
        packed = ranker(*tensors(LENGTHS, types=types))
        unpacked = forward_padded(ranker, ids, type_ids, mask)
    for got in (packed, unpacked):
        assert got.shape == (len(LENGTHS), 2)
        assert (got - expected[:, None]).abs().max() <= LOGITS


@pytest.mark.parametrize(("family", "changes"), FAMILIES)
def test_dropout_of_a_classifier_is_hugging_faces(family: str, changes: dict[str, object]) -> None:
    """From the same seed the classifier in training, on a body in evaluation mode, gives Hugging Face's logits.

    So dropout has the same number of places, on vectors of the same shape: before BERT's pooler there is none. The
    pairs are in order of their length, in which the ranker computes them, because dropout depends on the order.
    """
    lengths = sorted(LENGTHS)
    model = cross_encoder(family, **changes)
    body = set(model.base_model.modules())
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout) and module not in body:
            module.p = 0.5
            module.train()
    encoding = EncodingConfig(max_length=48, question_length=16)
    config = ranker_config(model.config, name="copy", body_layers=LAYERS - 1, heads=1, encoding=encoding)
    ranker = RankingNetwork(config, dropout=0.5).eval()
    load_weights(ranker, model.state_dict())
    for head in ranker.heads:
        head.get_submodule("classifier").train()
    types = config.transformer.type_vocab_size
    ids, type_ids, mask = padded(random_pairs(lengths, types=types), pad=model.config.pad_token_id)
    typed = {"token_type_ids": type_ids} if config.transformer.token_types else {}
    with torch.no_grad():
        torch.manual_seed(1)
        logits = model(input_ids=ids, attention_mask=mask.long(), **typed).logits
        torch.manual_seed(1)
        got = ranker(*tensors(lengths, types=types))[:, 0]
        still = ranker.eval()(*tensors(lengths, types=types))[:, 0]
    expected = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
    assert (got - expected).abs().max() <= LOGITS
    assert (got - still).abs().max() > LOGITS


@pytest.mark.parametrize("lengths", [LENGTHS, [7, 7, 7], [3 + 7 * row % 43 for row in range(2 * GROUP + 3)]])
def test_packed_equals_padded_in_every_stage(lengths: list[int]) -> None:
    """Exits (masked mean) and heads see the same hidden states in both layouts, for equal and many lengths too."""
    ranker, pairs = random_ranker(), random_pairs(lengths)
    with torch.no_grad():
        for stage in range(3):
            packed = ranker(*tensors(lengths), stage)
            assert (packed - forward_padded(ranker, *padded(pairs), stage)).abs().max() <= LOGITS


def test_mean_pooling_ignores_padding() -> None:
    """The mean of each pair's own tokens, by hand."""
    offsets = torch.tensor([0, 2, 3])
    hidden = torch.tensor([[1.0], [3.0], [10.0]])
    assert PackedLayout.of(offsets).mean(hidden).tolist() == [[2.0], [10.0]]
    mask = torch.tensor([[True, True], [True, False]])
    assert PaddedLayout(mask).mean(torch.tensor([[[1.0], [3.0]], [[10.0], [99.0]]])).tolist() == [[2.0], [10.0]]


@pytest.mark.parametrize("integers", [torch.int32, torch.int64])
def test_the_mean_of_packed_pairs_has_the_gradient_of_the_padded_mean(integers: torch.dtype) -> None:
    """In the precision of the hidden states, also under autocast."""
    _, _, offsets = tensors(LENGTHS)
    packed = PackedLayout.of(offsets.to(integers))
    hidden = torch.randn(sum(LENGTHS), 32, generator=torch.Generator().manual_seed(1)).bfloat16()
    towards = torch.randn(len(LENGTHS), 32, generator=torch.Generator().manual_seed(2)).bfloat16()
    found = []
    for mean in (packed.mean, lambda states: PaddedLayout(packed.mask).mean(packed.pad(states))):
        own = hidden.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            means = mean(own)
        torch.autograd.backward(means, towards)
        assert own.grad is not None
        assert means.dtype == own.grad.dtype == torch.bfloat16
        found.append((means.detach(), own.grad))
    torch.testing.assert_close(found[0], found[1])


def test_the_score_is_the_mean_of_the_heads_probabilities() -> None:
    """CERBERUS eq. 5: probabilities are averaged, not logits."""
    logits = np.array([[0.0, 2.0, -4.0]])
    mean = np.mean(1 / (1 + np.exp(-logits)))
    assert combine(logits, "probability")[0] == pytest.approx(mean)
    assert combine(logits, "logit")[0] == pytest.approx(1 / (1 + np.exp(2 / 3)))


def test_a_gradient_reaches_only_the_head_that_was_used() -> None:
    """The loss of head 1 changes the body and not head 2, because heads share nothing."""
    ranker = random_ranker()
    logits = ranker(*tensors(LENGTHS))
    torch.autograd.backward(logits[:, 0].sum())
    assert ranker.heads[1].get_parameter("classifier.output.weight").grad.abs().sum() == 0  # type: ignore[union-attr]
    assert ranker.body[0].get_parameter("up.weight").grad.abs().sum() > 0  # type: ignore[union-attr]
