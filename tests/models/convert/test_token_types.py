"""A model's table of token types is enlarged: what stays, what is new, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModel,
    BertConfig,
    BertForSequenceClassification,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraForPreTraining,
    RobertaConfig,
    RobertaForMaskedLM,
)

from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.token_types import grow_token_types

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
}


def models() -> list[Any]:
    torch.manual_seed(3)
    return [
        BertForSequenceClassification(BertConfig(**SIZES)),
        RobertaForMaskedLM(RobertaConfig(**SIZES, type_vocab_size=1)),
        ElectraForPreTraining(ElectraConfig(**SIZES, embedding_size=8)),
    ]


@pytest.mark.parametrize("model", models(), ids=lambda model: type(model).__name__)
def test_copied_rows_change_no_output(model: Any) -> None:
    """A third segment gives exactly what the last known type gave before."""
    model.eval()
    ids, last = torch.arange(1, 9)[None], model.config.type_vocab_size - 1
    with torch.inference_mode():
        before = model(input_ids=ids, token_type_ids=torch.full_like(ids, last)).logits
        grow_token_types(model, 3, new="copied", seed=1)
        after = model(input_ids=ids, token_type_ids=torch.full_like(ids, 2)).logits
    assert torch.equal(before, after)


@pytest.mark.parametrize("model", models(), ids=lambda model: type(model).__name__)
def test_fresh_rows_follow_from_the_seed(model: Any, tmp_path: Path) -> None:
    """Old rows stay, new ones differ by seed, and a saved model is read again with three types."""
    table = model.base_model.embeddings.token_type_embeddings.weight.detach().clone()
    grow_token_types(model, 3, new="fresh", seed=1)
    grown = model.base_model.embeddings.token_type_embeddings.weight.detach()
    assert torch.equal(grown[: len(table)], table)
    assert len(grown) == 3
    other = models()[[type(each) for each in models()].index(type(model))]
    grow_token_types(other, 3, new="fresh", seed=2)
    assert not torch.equal(other.base_model.embeddings.token_type_embeddings.weight[len(table) :], grown[len(table) :])
    model.save_pretrained(tmp_path)
    read = AutoModel.from_pretrained(tmp_path)
    assert torch.equal(read.embeddings.token_type_embeddings.weight, grown)


@pytest.mark.parametrize("model", models(), ids=lambda model: type(model).__name__)
def test_the_whole_table_may_be_drawn_anew(model: Any) -> None:
    """SSP appendix C: no row is the base's; drawn once, it stays when the model is fine-tuned in the same way."""
    before = model.base_model.embeddings.token_type_embeddings.weight.detach().clone()
    grow_token_types(model, 3, new="anew", seed=1)
    table = model.base_model.embeddings.token_type_embeddings.weight.detach().clone()
    assert table.shape == (3, before.shape[1])
    assert not any(torch.equal(table[row], before[row]) for row in range(len(before)))
    grow_token_types(model, 3, new="anew", seed=2)
    assert torch.equal(model.base_model.embeddings.token_type_embeddings.weight, table)


def test_a_table_that_is_large_enough_stays() -> None:
    """Nothing is drawn or replaced for a model that knows as many types."""
    model = models()[0]
    table = model.base_model.embeddings.token_type_embeddings
    grow_token_types(model, 2, new="fresh", seed=1)
    assert model.base_model.embeddings.token_type_embeddings is table


def test_a_model_without_token_types_is_refused() -> None:
    """DistilBERT has no such table."""
    model = DistilBertModel(DistilBertConfig(vocab_size=40, dim=16, n_layers=1, n_heads=2, hidden_dim=24))
    with pytest.raises(UnsupportedModelError, match="DistilBertModel has no table of token types"):
        grow_token_types(model, 3, new="fresh", seed=1)
