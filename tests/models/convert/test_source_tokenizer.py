"""Pairs that the checkpoint would read in another way than the model's own tokenizer are found."""

from __future__ import annotations

import pytest
from tests.tiny import bert_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS
from cerberank_models.convert.source_tokenizer import check_pairs, longest_pair, plain_tokenizer
from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.encoding import PairEncoder

NAMES = ["input_ids", "token_type_ids", "attention_mask"]


def tokenizer(template: str = "[CLS] $A [SEP] $B:1 [SEP]:1", **changes: object) -> PreTrainedTokenizerFast:
    """BERT's, with another template for pairs and other settings."""
    backend = bert_tokenizer()
    special = [(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A", pair=template, special_tokens=special)
    settings = {"pad_token": "[PAD]", "unk_token": "[UNK]", "model_input_names": NAMES, **changes}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **settings)


def check(own: PreTrainedTokenizerFast, length: int = 24) -> None:
    encoder = PairEncoder(
        plain_tokenizer(own),
        family="bert",
        config=TeacherInput(max_length=length).encoding(),
        type_vocab_size=2,
    )
    check_pairs(own, encoder, GOLDEN_TEXTS, max_length=length)


@pytest.mark.parametrize("length", [9, 24, 64, 512])
def test_the_family_s_own_template_passes(length: int) -> None:
    """Whatever the room: the golden texts and longer ones are cut alike."""
    check(tokenizer(), length)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (
            tokenizer("[CLS] $A [SEP] [SEP] $B:1 [SEP]:1"),
            r"tokens of the pair .* gives '\[SEP\]' \(3\) and its family's",
        ),
        (tokenizer("[CLS] $B [SEP] $A:1 [SEP]:1"), "tokens of the pair"),
        (tokenizer("[CLS] $A [SEP] $B:1"), "tokens of the pair"),
        (tokenizer("[CLS] $A [SEP] $B [SEP]"), "token types of the pair .* gives 0 and its family's template 1"),
        (tokenizer(model_input_names=["input_ids", "attention_mask"]), "token types of the pair"),
        (tokenizer(truncation_side="left"), "tokens of the pair"),
    ],
    ids=["two separators", "swapped", "no end", "no types in the template", "no types", "cut from the left"],
)
def test_another_way_to_read_pairs_is_refused(own: PreTrainedTokenizerFast, message: str) -> None:
    """The message names the first difference."""
    with pytest.raises(UnsupportedModelError, match=message):
        check(own)


def test_the_length_is_the_tokenizer_s() -> None:
    """Up to the positions that there are; one that states none has them all."""
    assert longest_pair(tokenizer(model_max_length=100), 512) == 100
    assert longest_pair(tokenizer(model_max_length=1000), 512) == 512
    assert longest_pair(tokenizer(), 512) == 512


def test_truncation_and_padding_of_the_tokenizer_are_left_behind() -> None:
    """They are settings of its last call, and would be in every checkpoint's file."""
    own = tokenizer()
    own("a b c", truncation=True, max_length=2, padding="max_length")
    plain = plain_tokenizer(own)
    assert (plain.truncation, plain.padding) == (None, None)
    assert own.backend_tokenizer.truncation is not None


def test_ids_are_compared_and_not_only_their_tokens() -> None:
    """A vocabulary that has a token twice: the tokenizer's template has one of its ids, the family's the other."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [(word, -1.0) for word in ("<s>", "<pad>", "</s>", "<unk>", "\u2581", *letters, "</s>")]
    backend = Tokenizer(models.Unigram(words, unk_id=3))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    own = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", model_input_names=NAMES[::2])
    encoder = PairEncoder(
        plain_tokenizer(own), family="xlm-roberta", config=TeacherInput(max_length=24).encoding(), type_vocab_size=1
    )
    message = rf"gives '</s>' \(2\) and its family's template '</s>' \({len(words) - 1}\)"
    with pytest.raises(UnsupportedModelError, match=message):
        check_pairs(own, encoder, GOLDEN_TEXTS, max_length=24)
