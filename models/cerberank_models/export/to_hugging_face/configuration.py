"""A ranker's shape as a `transformers` configuration: what `importing/families.py` reads, written again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import AutoConfig

from cerberank_models.config import RankerConfig
from cerberank_models.transformer import PreNormConfig, TransformerConfig

SIGMOID = "torch.nn.modules.activation.Sigmoid"
"""By which sentence-transformers makes the one logit a score, as our service does."""


def hugging_face_config(config: RankerConfig, special: Mapping[str, int]) -> Any:
    """The configuration of a sequence classifier of one logit; `special` are its special tokens' ids, by their names
    without `_token` (`pad`, `cls`, `sep`).
    """
    shape = config.body
    return AutoConfig.for_model(
        shape.family,
        vocab_size=shape.vocab_size,
        max_position_embeddings=shape.max_positions,
        num_labels=1,
        pad_token_id=special["pad"],
        bos_token_id=special["cls"],
        eos_token_id=special["sep"],
        sentence_transformers={"activation_fn": SIGMOID},
        **_own(shape, config),
    )


def _own(shape: TransformerConfig, config: RankerConfig) -> dict[str, Any]:
    """The fields that families name differently."""
    if shape.family == "distilbert":
        return {
            "dim": shape.hidden_size,
            "n_layers": shape.layers,
            "n_heads": shape.attention_heads,
            "hidden_dim": shape.intermediate_size,
        }
    sizes: dict[str, Any] = {
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.attention_heads,
        "intermediate_size": shape.intermediate_size,
    }
    if shape.pre_norm is not None:
        return sizes | {"norm_eps": shape.layer_norm_epsilon} | _pre_norm(shape.pre_norm, shape.layers, config)
    sizes |= {"layer_norm_eps": shape.layer_norm_epsilon, "type_vocab_size": shape.type_vocab_size}
    if shape.family in ("albert", "electra"):
        sizes["embedding_size"] = shape.embedding_size
    if shape.family == "albert":
        return sizes | {"num_hidden_groups": 1, "inner_group_num": 1, "hidden_act": "gelu_new"}
    return sizes | {"hidden_act": "gelu"}


def _pre_norm(options: PreNormConfig, layers: int, config: RankerConfig) -> dict[str, Any]:
    """What ModernBERT's configuration has beside the sizes."""
    kinds = ["full_attention" if options.window_of(depth) is None else "sliding_attention" for depth in range(layers)]
    return {
        "layer_types": kinds,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": options.global_theta},
            "sliding_attention": {"rope_type": "default", "rope_theta": options.local_theta},
        },
        "local_attention": 2 * options.window,
        "attention_bias": options.attention_bias,
        "mlp_bias": options.feed_forward_bias,
        "norm_bias": options.norm_bias,
        "classifier_bias": config.architecture.classifier_bias,
        "classifier_pooling": "mean" if config.architecture.classifier_pooling == "mean" else "cls",
    }
