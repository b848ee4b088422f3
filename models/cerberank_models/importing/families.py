"""How each family's Hugging Face models are read: their configuration, and where their weights go. A row a family."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from cerberank_models.transformer import Family, TransformerConfig


class UnsupportedModelError(ValueError):
    """The Hugging Face model cannot become a ranker; the message says why."""


Names = Mapping[str, str]
"""Beginnings of their names, each with the beginning of ours that takes its place."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportMapping:
    """How a family's models name things, and how we do; the family's own name stands before an encoder's weights."""

    transformer: Callable[[Any, Family], TransformerConfig]
    """Translates a `transformers` configuration. Raises UnsupportedModelError for what the body does not compute."""
    activation: Literal["tanh", "gelu"]
    """The activation of the classifier's hidden layer."""
    embeddings: Names
    """To names in `embeddings`."""
    layer: re.Pattern[str]
    """Matches a layer's weight: its number, its name within the layer. A layer that all depths share has number 0."""
    layer_names: Names
    """To names in a layer of the body or a head."""
    classifier: Names
    """To names in a head, beside its layers."""
    unused: re.Pattern[str]
    """Weights that ranking does not use: heads for language modelling, ids that can be counted."""

    def is_classifier(self, key: str) -> bool:
        """Whether `key` is a weight of a classification head, or of a pooler that may stand in its place."""
        return key.startswith((*self.classifier, "pooler."))


def _post_norm(source: Any, family: Family) -> TransformerConfig:
    """The configuration of the post-LN encoder (`network/bodies/post_norm.py`)."""
    if source.hidden_act != "gelu":
        raise UnsupportedModelError(f"activation {source.hidden_act!r} is not supported, only 'gelu'")
    if getattr(source, "position_embedding_type", None) not in (None, "absolute"):
        raise UnsupportedModelError("only absolute position embeddings are supported")
    return TransformerConfig(
        family=family,
        vocab_size=source.vocab_size,
        hidden_size=source.hidden_size,
        layers=source.num_hidden_layers,
        attention_heads=source.num_attention_heads,
        intermediate_size=source.intermediate_size,
        max_positions=source.max_position_embeddings,
        position_offset=source.pad_token_id + 1 if family == "roberta" else 0,
        type_vocab_size=source.type_vocab_size,
        embedding_size=getattr(source, "embedding_size", source.hidden_size),
        layer_norm_epsilon=source.layer_norm_eps,
    )


def _post_norm_mapping(activation: Literal["tanh", "gelu"], classifier: Names) -> ImportMapping:
    return ImportMapping(
        transformer=_post_norm,
        activation=activation,
        embeddings={
            "embeddings.word_embeddings.": "tokens.",
            "embeddings.position_embeddings.": "positions.",
            "embeddings.token_type_embeddings.": "types.",
            "embeddings.LayerNorm.": "norm.",
            "embeddings_project.": "project.",
        },
        layer=re.compile(r"encoder\.layer\.(\d+)\.(.*)"),
        layer_names={
            "attention.self.query.": "query.",
            "attention.self.key.": "key.",
            "attention.self.value.": "value.",
            "attention.output.dense.": "attention_output.",
            "attention.output.LayerNorm.": "attention_norm.",
            "intermediate.dense.": "up.",
            "output.dense.": "down.",
            "output.LayerNorm.": "output_norm.",
        },
        classifier=classifier,
        unused=re.compile(r"position_ids$|token_type_ids$|^cls\.|^lm_head\.|^discriminator_predictions\.|^generator_"),
    )


def _albert(source: Any, family: Family) -> TransformerConfig:
    """The configuration of the post-LN encoder with one layer for all depths."""
    if (groups := (source.num_hidden_groups, source.inner_group_num)) != (1, 1):
        raise UnsupportedModelError(
            f"num_hidden_groups {groups[0]} and inner_group_num {groups[1]} are not supported, only one layer that all "
            "depths share (1 and 1)"
        )
    if source.hidden_act != "gelu_new":
        raise UnsupportedModelError(f"activation {source.hidden_act!r} is not supported, only ALBERT's 'gelu_new'")
    if source.embedding_size == source.hidden_size:
        raise UnsupportedModelError("an embedding_size equal to hidden_size is not supported for ALBERT")
    return TransformerConfig(
        family=family,
        vocab_size=source.vocab_size,
        hidden_size=source.hidden_size,
        layers=source.num_hidden_layers,
        attention_heads=source.num_attention_heads,
        intermediate_size=source.intermediate_size,
        max_positions=source.max_position_embeddings,
        type_vocab_size=source.type_vocab_size,
        embedding_size=source.embedding_size,
        layer_norm_epsilon=source.layer_norm_eps,
    )


ALBERT = ImportMapping(
    transformer=_albert,
    activation="tanh",
    embeddings={
        "embeddings.word_embeddings.": "tokens.",
        "embeddings.position_embeddings.": "positions.",
        "embeddings.token_type_embeddings.": "types.",
        "embeddings.LayerNorm.": "norm.",
        "encoder.embedding_hidden_mapping_in.": "project.",
    },
    layer=re.compile(r"encoder\.albert_layer_groups\.(0)\.albert_layers\.0\.(.*)"),
    layer_names={
        "attention.query.": "query.",
        "attention.key.": "key.",
        "attention.value.": "value.",
        "attention.dense.": "attention_output.",
        "attention.LayerNorm.": "attention_norm.",
        "ffn.": "up.",
        "ffn_output.": "down.",
        "full_layer_layer_norm.": "output_norm.",
    },
    classifier={"pooler.": "classifier.dense.", "classifier.": "classifier.output."},
    unused=re.compile(r"position_ids$|token_type_ids$|^predictions\.|^sop_classifier\."),
)
_TWO_LINEARS = {"classifier.dense.": "classifier.dense.", "classifier.out_proj.": "classifier.output."}

FAMILIES: Mapping[Family, ImportMapping] = MappingProxyType(
    {
        "albert": ALBERT,
        "bert": _post_norm_mapping("tanh", {"pooler.dense.": "classifier.dense.", "classifier.": "classifier.output."}),
        "electra": _post_norm_mapping("gelu", _TWO_LINEARS),
        "roberta": _post_norm_mapping("tanh", _TWO_LINEARS),
    }
)
"""By `model_type` of the `transformers` configuration, which is the family's name here too."""
