"""A checkpoint's tokenizer as the files that transformers reads, with the pairs of the checkpoint's family."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from tokenizers import Tokenizer, processors

from cerberank_models.importing.families import UnsupportedModelError
from cerberank_models.tokens import special_tokens
from cerberank_models.transformer import PAIR_TEMPLATES, TransformerConfig

NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"pad": ("[PAD]", "<pad>"), "unk": ("[UNK]", "<unk>"), "mask": ("[MASK]", "<mask>")}
)
"""How vocabularies name special tokens that stand in no pair."""


def special_token_names(tokenizer: Tokenizer, shape: TransformerConfig) -> dict[str, str]:
    """The special tokens by their role: `cls`, `sep` and `pad`, and `unk` and `mask` where the vocabulary has them.

    Where positions are counted from the padding token's id, that token is the padding. Raises UnsupportedModelError for
    a vocabulary without a padding token.
    """
    template = PAIR_TEMPLATES[shape.family]
    special = {"cls": template.first, "sep": template.separator}
    for role, names in NAMES.items():
        if found := next((name for name in names if tokenizer.token_to_id(name) is not None), None):
            special[role] = found
    if shape.position_offset:
        special["pad"] = tokenizer.id_to_token(shape.position_offset - 1) or ""
    if not special.get("pad"):
        raise UnsupportedModelError(f"the tokenizer has no padding token: none of {', '.join(NAMES['pad'])}")
    return special


def token_ids(tokenizer: Tokenizer, names: Mapping[str, str]) -> dict[str, int]:
    """The ids of special tokens by their role."""
    ids = {role: tokenizer.token_to_id(name) for role, name in names.items()}
    return {role: number for role, number in ids.items() if number is not None}


def tokenizer_files(tokenizer: Tokenizer, shape: TransformerConfig, *, max_length: int) -> dict[str, bytes]:
    """`tokenizer.json` and `tokenizer_config.json` of a fast tokenizer that makes our pairs, of `max_length` tokens."""
    special = special_token_names(tokenizer, shape)
    template = PAIR_TEMPLATES[shape.family]
    first, separator = special_tokens(tokenizer, template)
    own = Tokenizer.from_str(tokenizer.to_str())
    own.no_truncation()
    own.no_padding()
    second = min(1, shape.type_vocab_size - 1)
    joins = " ".join([f"{template.separator}:0"] + [f"{template.separator}:{second}"] * (template.between - 1))
    own.post_processor = processors.TemplateProcessing(
        single=f"{template.first}:0 $A:0 {template.separator}:0",
        pair=f"{template.first}:0 $A:0 {joins} $B:{second} {template.separator}:{second}",
        special_tokens=[(template.first, first), (template.separator, separator)],
    )
    types = ["token_type_ids"] if shape.token_types and shape.type_vocab_size > 1 else []
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": ["input_ids", *types, "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **{f"{role}_token": name for role, name in special.items()},
    }
    return {
        "tokenizer.json": own.to_str(pretty=True).encode(),
        "tokenizer_config.json": (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode(),
    }
