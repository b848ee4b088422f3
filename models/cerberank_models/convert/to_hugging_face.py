"""Converts one head of a ranker, with the body below it, to a sequence classifier of transformers.

The result is an ordinary encoder of b + h layers with one classifier. Its configuration and the names of its weights
follow the same mapping as imports (`convert/families.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForSequenceClassification

from cerberank_models.config import RankerConfig
from cerberank_models.convert.families import FAMILIES, UnsupportedModelError, inner_size
from cerberank_models.convert.from_hugging_face import places
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.transformer import OpaqueTransformer, PreNormConfig, TransformerConfig

SIGMOID = "torch.nn.modules.activation.Sigmoid"
"""The activation with which sentence-transformers computes a score from one logit, as the service does."""


def hugging_face_config(config: RankerConfig, special: Mapping[str, int]) -> Any:
    """The configuration of a sequence classifier with one logit.

    `special` holds the ids of special tokens by their names without `_token` (`pad`, `cls`, `sep`).
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
        **_fields(shape, config),
    )


def _fields(shape: TransformerConfig, config: RankerConfig) -> dict[str, Any]:
    """The fields whose names depend on the family."""
    sizes: dict[str, Any] = {
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.attention_heads,
        inner_size(shape.family): shape.intermediate_size,
    }
    if shape.family == "distilbert":
        return sizes
    if shape.pre_norm is not None:
        return sizes | {"norm_eps": shape.layer_norm_epsilon} | _pre_norm(shape.pre_norm, shape.layers, config)
    sizes |= {"layer_norm_eps": shape.layer_norm_epsilon, "type_vocab_size": shape.type_vocab_size}
    if shape.family in ("albert", "electra"):
        sizes["embedding_size"] = shape.embedding_size
    if shape.family == "albert":
        return sizes | {"num_hidden_groups": 1, "inner_group_num": 1, "hidden_act": "gelu_new"}
    return sizes | {"hidden_act": "gelu"}


def _pre_norm(options: PreNormConfig, layers: int, config: RankerConfig) -> dict[str, Any]:
    """The fields of ModernBERT's configuration other than the sizes."""
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


OUTPUT = "heads.0.classifier.output."


def classifier_of(ranker: RankingNetwork, configuration: Any) -> Any:
    """The transformers model of this `configuration`, with the weights of `ranker`, in evaluation mode.

    `ranker` must have one head. A classifier with two logits is converted to one with their difference. Raises
    UnsupportedModelError for weights that the model has no place for, such as the own layer of a head on ALBERT if it
    was trained to differ from the body's one layer.
    """
    names, state, used = FAMILIES[ranker.config.body.family], _one_logit(ranker.state_dict()), set()
    model = AutoModelForSequenceClassification.from_config(configuration).eval()
    filled: dict[str, Tensor] = {}
    for key, value in model.state_dict().items():
        if names.unused.search(key):
            filled[key] = value
            continue
        parts = []
        for part, _ in names.parts(key, value):
            where = places(part.removeprefix(names.prefix), names, ranker)
            weights = [state[place] for place in where]
            if not weights or any(not torch.equal(weights[0], other) for other in weights):
                raise UnsupportedModelError(
                    f"{ranker.config.name} cannot be a {type(model).__name__}: {key} would have to be all of {where}, "
                    "which differ"
                )
            parts.append(weights[0])
            used.update(where)
        filled[key] = torch.cat(parts)
    if surplus := sorted(set(state) - used):
        raise UnsupportedModelError(f"{type(model).__name__} has no place for {', '.join(surplus)}")
    model.load_state_dict(filled, strict=True)
    return model


def _one_logit(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a classifier with one logit; for two logits this is `z1 - z0`."""
    return {
        name: value[1:] - value[:1] if name.startswith(OUTPUT) and len(value) == 2 else value
        for name, value in state.items()
    }


def check_exportable(config: RankerConfig, head: int | None) -> None:
    """Raise UnsupportedModelError unless `head` (counted from 1) can be a sequence classifier.

    `head` may be None if the ranker has one head, no exits and no first stage. The message says what is possible.
    """
    name, heads = config.name, config.architecture.heads
    # No head of such a ranker has a form in transformers.
    if isinstance(config.transformer, OpaqueTransformer):
        raise UnsupportedModelError(
            f"{name} is an opaque graph ({config.transformer.model_type}) without layers to export: what it was "
            "imported from is its Hugging Face form"
        )
    if config.encoding.segments == 3:
        raise UnsupportedModelError(
            f"{name} reads the previous and the next sentence as a third segment, and the tokenizers and CrossEncoder "
            "of Hugging Face read pairs: it can be served by Cerberank alone"
        )
    if config.architecture.classifier_modules:
        raise UnsupportedModelError(
            f"{name} has a classifier of sentence-transformers' modules, which no sequence classifier of transformers "
            "has: what it was imported from is its Hugging Face form"
        )
    if not heads:
        raise UnsupportedModelError(
            f"{name} has no heads: its last score is an exit's, of layers over the mean of all tokens that no sequence "
            "classifier of transformers has. Only a head can be exported"
        )
    if head is not None and not 1 <= head <= heads:
        raise UnsupportedModelError(f"{name} is {config.architecture}: --head is from 1 to {heads}, not {head}")
    if head is not None:
        return
    # Without a number, nothing may be left out.
    parts = [f"{heads} heads"] if heads > 1 else []
    parts += ["exits"] if config.exits else []
    parts += ["a first stage"] if config.first_stage else []
    if parts:
        raise UnsupportedModelError(
            f"{name} is {config.architecture} with {' and '.join(parts)}, and a sequence classifier is one encoder "
            f"with one classifier: --head N (1{f' to {heads}' if heads > 1 else ''}) exports that head with the body "
            "below it, which scores exactly as the head does, and leaves the rest out"
        )


def one_head(ranker: RankingNetwork, head: int) -> RankingNetwork:
    """The ranker `B_b 1H_h` with the body and the `head` (counted from 1), without exits, first stage and schedules."""
    config = ranker.config
    single = RankingNetwork(
        RankerConfig(
            name=config.name,
            transformer=config.transformer,
            architecture=config.architecture.model_copy(update={"heads": 1}),
            encoding=config.encoding,
        )
    )
    prefix = f"heads.{head - 1}."
    state = ranker.state_dict()
    weights = {name: value for name, value in state.items() if name.startswith(("embeddings.", "body."))}
    weights |= {name.replace(prefix, "heads.0.", 1): value for name, value in state.items() if name.startswith(prefix)}
    single.load_state_dict(weights, strict=True)
    return single.float().eval()
