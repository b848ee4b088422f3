"""The table of families of Hugging Face encoders: how configurations and names of weights map to those of a ranker."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from torch import Tensor

from cerberank_models.transformer import DecoderConfig, Family, PreNormConfig, TransformerConfig


class UnsupportedModelError(ValueError):
    """The Hugging Face model cannot be imported as a ranker; the message says why."""


Names = Mapping[str, str]
"""Maps the beginning of a Hugging Face name of a weight to the beginning of the ranker's name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportMapping:
    """The mapping from a family's Hugging Face models to rankers."""

    prefix: str
    """The prefix of the encoder's weights in a model with a head, such as `bert.`."""
    transformer: Callable[[Any, Family], TransformerConfig]
    """Translates a `transformers` configuration. Raises UnsupportedModelError for settings that the body lacks."""
    activation: Literal["tanh", "gelu", "relu"]
    """The activation of the classifier's hidden layer."""
    embeddings: Names
    """Maps to names in `embeddings`."""
    layer: re.Pattern[str]
    """Matches the name of a layer's weight. The groups are the layer's number, which is 0 for a layer that all depths
    share, and the name within the layer."""
    layer_names: Names
    """Maps to names in a layer of the body or a head."""
    classifier: Names
    """Maps to names in a head, outside of its layers."""
    merged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For Hugging Face weights that hold several of the ranker's weights one after another: the part of their name that
    shows this, and its replacements in the names of these weights."""
    output_norm: str | None = None
    """The name of the norm after the last layer, if the family has one. It is copied to every exit and head."""
    unused: re.Pattern[str]
    """Matches names of weights that rankers do not need: heads for language modelling, and position ids."""

    def parts(self, key: str, value: Tensor) -> list[tuple[str, Tensor]]:
        """The weights that the weight `key` holds, by name; usually only itself (see `merged`)."""
        for merged, names in self.merged.items():
            if merged in key:
                renamed = [key.replace(merged, name) for name in names]
                return list(zip(renamed, value.tensor_split(len(names)), strict=True))
        return [(key, value)]

    def is_classifier(self, key: str) -> bool:
        """True if `key` is a weight of a classification head, or of a pooler, which may be the first layer of one."""
        return key.startswith((*self.classifier, "pooler."))


def inner_size(family: Family) -> str:
    """The name of a feed-forward's width in a `transformers` configuration, the only size with two names there."""
    return "hidden_dim" if family == "distilbert" else "intermediate_size"


def usual_sizes(
    source: Any,
    family: Family,
    *,
    epsilon: float,
    position_offset: int = 0,
    pre_norm: PreNormConfig | None = None,
    decoder: DecoderConfig | None = None,
) -> TransformerConfig:
    """The configuration of a model of transformers whose sizes have the usual names there, or DistilBERT's.

    Only post-norm encoders have token types, or embeddings of another width than their hidden states.
    """
    post_norm = pre_norm is None and decoder is None
    return TransformerConfig(
        family=family,
        vocab_size=source.vocab_size,
        hidden_size=source.hidden_size,
        layers=source.num_hidden_layers,
        attention_heads=source.num_attention_heads,
        intermediate_size=getattr(source, inner_size(family)),
        max_positions=source.max_position_embeddings,
        position_offset=position_offset,
        type_vocab_size=getattr(source, "type_vocab_size", 1) if post_norm else 1,
        embedding_size=getattr(source, "embedding_size", source.hidden_size) if post_norm else source.hidden_size,
        layer_norm_epsilon=epsilon,
        pre_norm=pre_norm,
        decoder=decoder,
    )


def _post_norm(source: Any, family: Family) -> TransformerConfig:
    """The configuration of the post-norm encoder (`network/bodies/post_norm.py`)."""
    if source.hidden_act != "gelu":
        raise UnsupportedModelError(f"activation {source.hidden_act!r} is not supported, only 'gelu'")
    if getattr(source, "position_embedding_type", None) not in (None, "absolute"):
        raise UnsupportedModelError("only absolute position embeddings are supported")
    offset = source.pad_token_id + 1 if family in ("roberta", "xlm-roberta") else 0
    return usual_sizes(source, family, epsilon=source.layer_norm_eps, position_offset=offset)


def _post_norm_mapping(prefix: str, activation: Literal["tanh", "gelu"], classifier: Names) -> ImportMapping:
    return ImportMapping(
        prefix=prefix,
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
    """The configuration of the post-norm encoder with one layer for all depths."""
    if (groups := (source.num_hidden_groups, source.inner_group_num)) != (1, 1):
        raise UnsupportedModelError(
            f"num_hidden_groups {groups[0]} and inner_group_num {groups[1]} are not supported, only one layer that all "
            "depths share (1 and 1)"
        )
    if source.hidden_act != "gelu_new":
        raise UnsupportedModelError(f"activation {source.hidden_act!r} is not supported, only ALBERT's 'gelu_new'")
    if source.embedding_size == source.hidden_size:
        raise UnsupportedModelError("an embedding_size equal to hidden_size is not supported for ALBERT")
    return usual_sizes(source, family, epsilon=source.layer_norm_eps)


ALBERT = ImportMapping(
    prefix="albert.",
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


def _distil(source: Any, family: Family) -> TransformerConfig:
    """The configuration of the post-norm encoder without token types, whose norms have a fixed epsilon."""
    if source.activation != "gelu":
        raise UnsupportedModelError(f"activation {source.activation!r} is not supported, only 'gelu'")
    return usual_sizes(source, family, epsilon=1e-12)


DISTILBERT = ImportMapping(
    prefix="distilbert.",
    transformer=_distil,
    activation="relu",
    embeddings={
        "embeddings.word_embeddings.": "tokens.",
        "embeddings.position_embeddings.": "positions.",
        "embeddings.LayerNorm.": "norm.",
    },
    layer=re.compile(r"transformer\.layer\.(\d+)\.(.*)"),
    layer_names={
        "attention.q_lin.": "query.",
        "attention.k_lin.": "key.",
        "attention.v_lin.": "value.",
        "attention.out_lin.": "attention_output.",
        "sa_layer_norm.": "attention_norm.",
        "ffn.lin1.": "up.",
        "ffn.lin2.": "down.",
        "output_layer_norm.": "output_norm.",
    },
    classifier={"pre_classifier.": "classifier.dense.", "classifier.": "classifier.output."},
    unused=re.compile(r"position_ids$|^vocab_|^qa_outputs\."),
)


def _modern(source: Any, family: Family) -> TransformerConfig:
    """The configuration of the pre-norm encoder (`network/bodies/pre_norm.py`)."""
    for name in ("hidden_activation", "classifier_activation"):
        if (activation := getattr(source, name)) != "gelu":
            raise UnsupportedModelError(f"{name} {activation!r} is not supported, only 'gelu'")
    # Rotations and windows of attention have one period each in our body.
    rope = source.rope_parameters
    if strange := {
        kind: settings for kind, settings in rope.items() if set(settings) - _ROPE or settings["rope_type"] != "default"
    }:
        raise UnsupportedModelError(f"rope_parameters {strange} are not supported, only a rope_theta")
    wholes = [index for index, kind in enumerate(source.layer_types) if kind == "full_attention"]
    every = wholes[1] if len(wholes) > 1 else len(source.layer_types)
    if wholes != list(range(0, len(source.layer_types), every)):
        raise UnsupportedModelError(f"layer_types with full_attention in {wholes} are not supported, only every n-th")
    return usual_sizes(
        source,
        family,
        epsilon=source.norm_eps,
        pre_norm=PreNormConfig(
            global_every=every,
            window=source.local_attention // 2,
            global_theta=rope["full_attention"]["rope_theta"],
            local_theta=rope["sliding_attention"]["rope_theta"],
            attention_bias=source.attention_bias,
            feed_forward_bias=source.mlp_bias,
            norm_bias=source.norm_bias,
        ),
    )


_ROPE = {"rope_type", "rope_theta"}
MODERNBERT = ImportMapping(
    prefix="model.",
    transformer=_modern,
    activation="gelu",
    embeddings={"embeddings.tok_embeddings.": "tokens.", "embeddings.norm.": "norm."},
    layer=re.compile(r"layers\.(\d+)\.(.*)"),
    layer_names={
        "attn_norm.": "attention_norm.",
        "attn.query.": "query.",
        "attn.key.": "key.",
        "attn.value.": "value.",
        "attn.Wo.": "attention_output.",
        "mlp_norm.": "feed_norm.",
        "mlp.gate.": "gate.",
        "mlp.up.": "up.",
        "mlp.Wo.": "down.",
    },
    merged={"attn.Wqkv.": ("attn.query.", "attn.key.", "attn.value."), "mlp.Wi.": ("mlp.gate.", "mlp.up.")},
    output_norm="final_norm.",
    classifier={
        "head.dense.": "classifier.dense.",
        "head.norm.": "classifier.norm.",
        "classifier.": "classifier.output.",
    },
    unused=re.compile(r"^decoder\."),
)
_TWO_LINEARS = {"classifier.dense.": "classifier.dense.", "classifier.out_proj.": "classifier.output."}

FAMILIES: Mapping[Family, ImportMapping] = MappingProxyType(
    {
        "albert": ALBERT,
        "bert": _post_norm_mapping(
            "bert.", "tanh", {"pooler.dense.": "classifier.dense.", "classifier.": "classifier.output."}
        ),
        "distilbert": DISTILBERT,
        "electra": _post_norm_mapping("electra.", "gelu", _TWO_LINEARS),
        "modernbert": MODERNBERT,
        "roberta": _post_norm_mapping("roberta.", "tanh", _TWO_LINEARS),
        "xlm-roberta": _post_norm_mapping("roberta.", "tanh", _TWO_LINEARS),
    }
)
"""The mapping of each encoder, by `model_type` of its `transformers` configuration, which is also the family's name."""
