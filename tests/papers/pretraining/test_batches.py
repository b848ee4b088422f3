"""Batches: the served layout, masks by Hugging Face's rules, and that they follow from seed and number alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.papers.pretraining.documents import documents, groups_of
from tests.papers.pretraining.networks import save_base
from transformers import AutoTokenizer

from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.encoding import PairEncoder
from cerberank_models.transformer import Family
from cerberank_papers.pretraining.batches import Batches, Item

FAMILIES: list[Family] = ["bert", "roberta", "electra"]


def items(count: int) -> list[Item]:
    groups = groups_of(documents([[3, 4, 5], [4, 4], [2, 5]]), "all", seed=1)
    return [(index, groups.group(index)) for index in range(count)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_layout_is_a_contextual_teachers(family: Family, tmp_path: Path) -> None:
    """Token by token what a teacher reads as question, candidate and context, with three token types and a context."""
    tokenizer = AutoTokenizer.from_pretrained(save_base(family, tmp_path))
    batch = Batches(tokenizer, family=family, max_length=48, masks=False, seed=1)(items(3))
    encoder = PairEncoder(
        tokenizer.backend_tokenizer,
        family=family,
        config=TeacherInput(max_length=48, context=True).encoding(),
        type_vocab_size=3,
    )
    assert "labels" not in batch
    examples = [example for _, group in items(3) for example in group]
    assert batch["ssp_labels"].tolist() == [example.label for example in examples]
    for row, example in enumerate(examples):
        encoded = encoder.encode(example.a, [example.b])
        length = encoded.tokens
        assert batch["input_ids"][row, :length].tolist() == encoded.token_ids.tolist()
        assert batch["token_type_ids"][row, :length].tolist() == encoded.type_ids.tolist()
        assert set(encoded.type_ids.tolist()) == {0, 1, 2}
        assert batch["attention_mask"][row].tolist() == [1] * length + [0] * (len(batch["input_ids"][row]) - length)


def test_masks_are_fifteen_percent_and_spare_special_tokens(tmp_path: Path) -> None:
    """15 % of ordinary tokens, 80/10/10; bounds are six standard deviations of a binomial of this size."""
    tokenizer = AutoTokenizer.from_pretrained(save_base("bert", tmp_path))
    plain = Batches(tokenizer, family="bert", max_length=48, masks=False, seed=1)(items(150))["input_ids"]
    batch = Batches(tokenizer, family="bert", max_length=48, masks=True, seed=1)(items(150))
    chosen = batch["labels"] != -100
    special = torch.isin(plain, torch.tensor(tokenizer.all_special_ids))
    ordinary, masked = int((~special).sum()), int(chosen.sum())
    assert not (chosen & special).any()
    assert torch.equal(torch.where(chosen, batch["labels"], batch["input_ids"]), plain)
    assert masked / ordinary == pytest.approx(0.15, abs=6 * (0.15 * 0.85 / ordinary) ** 0.5)
    shown = batch["input_ids"][chosen]
    hidden = (shown == tokenizer.mask_token_id).float().mean()
    kept = (shown == batch["labels"][chosen]).float().mean()
    assert float(hidden) == pytest.approx(0.8, abs=6 * (0.8 * 0.2 / masked) ** 0.5)
    assert float(kept) == pytest.approx(0.1, abs=6 * (0.1 * 0.9 / masked) ** 0.5)


def test_a_batch_follows_from_its_items_and_the_seed(tmp_path: Path) -> None:
    """The same masks whatever was made before; others for another seed, and for other items."""
    tokenizer = AutoTokenizer.from_pretrained(save_base("bert", tmp_path))
    one = Batches(tokenizer, family="bert", max_length=48, masks=True, seed=1)
    late, early = one(items(4)[2:]), one(items(2))
    fresh = Batches(tokenizer, family="bert", max_length=48, masks=True, seed=1)(items(4)[2:])
    assert all(torch.equal(late[name], fresh[name]) for name in fresh)
    assert not torch.equal(early["labels"][:, :12] != -100, late["labels"][:, :12] != -100)
    other = Batches(tokenizer, family="bert", max_length=48, masks=True, seed=2)(items(2))
    assert not torch.equal(early["labels"], other["labels"])


def test_a_tokenizer_without_mask_is_refused(tmp_path: Path) -> None:
    """It is refused where masks are wanted."""
    tokenizer = AutoTokenizer.from_pretrained(save_base("bert", tmp_path))
    tokenizer.mask_token = None
    with pytest.raises(ValueError, match="no mask token"):
        Batches(tokenizer, family="bert", max_length=48, masks=True, seed=1)
