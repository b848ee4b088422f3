"""Hugging Face BERT, ELECTRA and RoBERTa models become rankers: configuration and weights.

Every weight is accounted for: what the model has and the ranker has no place for is an error,
unless it belongs to a head that ranking does not use (language modelling, an unused pooler).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, cast

import torch
from torch import Tensor

from cerberank_models.config import (
    ArchitectureConfig,
    EncodingConfig,
    ExitConfig,
    Family,
    RankerConfig,
    TransformerConfig,
)
from cerberank_models.network.ranker import Ranker

FAMILIES = ("bert", "electra", "roberta")
ACTIVATIONS: dict[Family, Literal["tanh", "gelu"]] = {"bert": "tanh", "roberta": "tanh", "electra": "gelu"}

EMBEDDINGS = {
    "embeddings.word_embeddings.": "tokens.",
    "embeddings.position_embeddings.": "positions.",
    "embeddings.token_type_embeddings.": "types.",
    "embeddings.LayerNorm.": "norm.",
    "embeddings_project.": "project.",
}
LAYER = {
    "attention.self.query.": "query.",
    "attention.self.key.": "key.",
    "attention.self.value.": "value.",
    "attention.output.dense.": "attention_output.",
    "attention.output.LayerNorm.": "attention_norm.",
    "intermediate.dense.": "up.",
    "output.dense.": "down.",
    "output.LayerNorm.": "output_norm.",
}
CLASSIFIER: dict[Family, dict[str, str]] = {
    "bert": {"pooler.dense.": "dense.", "classifier.": "output."},
    "electra": {"classifier.dense.": "dense.", "classifier.out_proj.": "output."},
    "roberta": {"classifier.dense.": "dense.", "classifier.out_proj.": "output."},
}
UNUSED = re.compile(r"position_ids$|token_type_ids$|^cls\.|^lm_head\.|^discriminator_predictions\.|^generator_")


class UnsupportedModelError(ValueError):
    """The Hugging Face model cannot become a ranker; the message says why."""


def transformer_config(source: Any) -> TransformerConfig:
    """Translate a `transformers` configuration; refuse what our encoder does not compute."""
    if source.model_type not in FAMILIES:
        raise UnsupportedModelError(f"model type {source.model_type!r} is not one of {', '.join(FAMILIES)}")
    if source.hidden_act != "gelu":
        raise UnsupportedModelError(f"activation {source.hidden_act!r} is not supported, only 'gelu'")
    if getattr(source, "position_embedding_type", None) not in (None, "absolute"):
        raise UnsupportedModelError("only absolute position embeddings are supported")
    family = cast(Family, source.model_type)
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


def ranker_config(
    source: Any,
    *,
    name: str,
    body_layers: int | None = None,
    heads: int = 1,
    exits: tuple[ExitConfig, ...] = (),
    encoding: EncodingConfig | None = None,
    logits: Literal[1, 2] = 2,
) -> RankerConfig:
    """`B_b kH_h` for a `transformers` configuration; b defaults to n - 1 (to n without heads)."""
    transformer = transformer_config(source)
    body = body_layers if body_layers is not None else transformer.layers - (1 if heads else 0)
    return RankerConfig(
        name=name,
        transformer=transformer,
        architecture=ArchitectureConfig(
            body_layers=body,
            heads=heads,
            head_layers=transformer.layers - body,
            classifier_activation=ACTIVATIONS[transformer.family],
            classifier_logits=logits,
        ),
        exits=exits,
        encoding=encoding or EncodingConfig(),
    )


def load_weights(ranker: Ranker, weights: Mapping[str, Tensor], *, fresh_classifier: bool = False) -> None:
    """Fill `ranker` from the state dict of a Hugging Face model of the same family, strictly.

    Layers b..n-1 and the classifier are copied into every head (CERBERUS section 3). With
    `fresh_classifier` the weights come from a model without a classification head, and the heads'
    classifiers, like all exits, keep their random initialisation. Raises UnsupportedModelError naming every
    key without a place or without a source.
    """
    state = ranker.state_dict()
    family, body = ranker.config.transformer.family, ranker.config.architecture.body_layers
    filled, surplus = set(), []
    for key, value in weights.items():
        targets = [] if UNUSED.search(key) else _targets(key.removeprefix(f"{family}."), family, body, ranker)
        if fresh_classifier and not UNUSED.search(key) and _is_classifier(key.removeprefix(f"{family}."), family):
            continue
        if not targets and not UNUSED.search(key):
            surplus.append(key)
        for target in targets:
            if target not in state or state[target].shape != value.shape:
                surplus.append(f"{key} {tuple(value.shape)}")
                continue
            state[target] = value.to(state[target].dtype)
            filled.add(target)
    fresh = {key for key in state if key.startswith("exits.") or (fresh_classifier and ".classifier." in key)}
    missing = sorted(set(state) - filled - fresh)
    if surplus or missing:
        raise UnsupportedModelError(f"weights do not fit: without a place {surplus}, without a source {missing}")
    ranker.load_state_dict(state, strict=True)


def initialise(module: torch.nn.Module, *, seed: int, deviation: float = 0.02) -> None:
    """BERT's initialisation of fresh linear layers: normal weights, zero biases; seeded."""
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, torch.nn.Linear):
            with torch.no_grad():
                part.weight.normal_(0.0, deviation, generator=generator)
                part.bias.zero_()


def _is_classifier(key: str, family: Family) -> bool:
    return key.startswith((*CLASSIFIER[family], "pooler."))


def _targets(key: str, family: Family, body: int, ranker: Ranker) -> list[str]:
    """Names in the ranker's state dict that take the weight `key`; empty when there is none."""
    if matched := re.match(r"encoder\.layer\.(\d+)\.(.*)", key):
        index, name = int(matched[1]), _renamed(matched[2], LAYER)
        if name is None:
            return []
        if index < body:
            return [f"body.{index}.{name}"]
        return [f"heads.{head}.layers.{index - body}.{name}" for head in range(len(ranker.heads))]
    if name := _renamed(key, EMBEDDINGS):
        return [f"embeddings.{name}"]
    if name := _renamed(key, CLASSIFIER[family]):
        return [f"heads.{head}.classifier.{name}" for head in range(len(ranker.heads))]
    return []


def _renamed(key: str, names: Mapping[str, str]) -> str | None:
    for old, new in names.items():
        if key.startswith(old):
            return new + key[len(old) :]
    return None
