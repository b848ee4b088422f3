from __future__ import annotations

import pytest
import transformers
from tests.tiny import bert_tokenizer, hugging_face_config, roberta_tokenizer
from tokenizers import processors

from cerberank_models.importing.families import UnsupportedModelError
from cerberank_models.importing.opaque import opaque_config, pair_template, why_opaque
from cerberank_models.importing.teacher_input import TeacherInput
from cerberank_models.transformer import PAIR_TEMPLATES

ENCODING = TeacherInput(max_length=48).encoding()


def test_the_template_is_the_tokenizers_own() -> None:
    """One separator between the texts, or two; the special tokens as text."""
    for family, tokenizer in (("bert", bert_tokenizer()), ("roberta", roberta_tokenizer())):
        found = pair_template(transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer))
        assert found == PAIR_TEMPLATES[family]  # type: ignore[index]


@pytest.mark.parametrize("pair", ["$A [SEP] $B [SEP] [CLS]", "[CLS] $B [SEP] $A [SEP]", "[CLS] $A $B [SEP]", "$A $B"])
def test_another_layout_is_refused(pair: str) -> None:
    """The error shows a pair as the tokenizer makes it."""
    tokenizer = bert_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A", pair=pair, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    with pytest.raises(UnsupportedModelError, match=r"its tokenizer makes pairs such as .*how tall is"):
        pair_template(transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer))


def test_the_configuration_is_what_both_say() -> None:
    """Depth and vocabulary from transformers' configuration, token types and template from the tokenizer."""
    source = hugging_face_config("electra", num_labels=1)
    for names, types in ((["input_ids", "attention_mask"], 1), (["input_ids", "token_type_ids"], 2)):
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bert_tokenizer(), model_input_names=names)
        config = opaque_config(source, tokenizer, name="x", encoding=ENCODING)
        assert config.transformer.type_vocab_size == types
        assert (config.transformer.layers, config.transformer.vocab_size) == (4, 300)
        assert (config.architecture.classifier_logits, config.encoding.max_length) == (1, 48)


def test_a_model_without_a_vocabulary_is_refused() -> None:
    """Such as one that reads pictures."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bert_tokenizer())
    with pytest.raises(UnsupportedModelError, match="vit states no vocab_size"):
        opaque_config(transformers.ViTConfig(), tokenizer, name="x", encoding=ENCODING)


def test_only_what_has_no_layers_here_is_opaque() -> None:
    """A known family is not, unless it computes something else; the reason is told."""
    assert why_opaque(hugging_face_config("bert")) is None
    assert "'relu'" in str(why_opaque(hugging_face_config("bert", hidden_act="relu")))
    assert "'deberta-v2'" in str(why_opaque(transformers.DebertaV2Config()))
