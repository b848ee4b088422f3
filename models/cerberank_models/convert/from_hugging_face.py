"""Builds rankers from Hugging Face models, by the mapping of their family for configuration and weights.

A weight that the ranker has no place for is an error, unless it belongs to a head that rankers do not use (for language
modelling, or an unused pooler).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor

from cerberank_models.config import ArchitectureConfig, EncodingConfig, ExitConfig, RankerConfig
from cerberank_models.convert.families import FAMILIES, ImportMapping, Names, UnsupportedModelError
from cerberank_models.convert.modules import CLASSIFIER, ModularHead
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.network.text_ranker import TextRanker, TextVectors
from cerberank_models.transformer import TransformerConfig


def transformer_config(source: Any) -> TransformerConfig:
    """Translate a `transformers` configuration. Raises UnsupportedModelError for settings that the body lacks."""
    family = next((family for family in FAMILIES if family == source.model_type), None)
    if family is None:
        raise UnsupportedModelError(f"model type {source.model_type!r} is not one of {', '.join(FAMILIES)}")
    return FAMILIES[family].transformer(source, family)


def ranker_config(
    source: Any,
    *,
    name: str,
    body_layers: int | None = None,
    heads: int = 1,
    exits: tuple[ExitConfig, ...] = (),
    encoding: EncodingConfig | None = None,
    logits: Literal[1, 2] = 2,
    head: ModularHead | None = None,
) -> RankerConfig:
    """The ranker `B_b kH_h` for a `transformers` configuration with n layers.

    b defaults to n - 1. It defaults to n if there are no heads, or if all layers share their weights, because a head's
    own layer would be a second copy of these. `head` is the classifier of a modular cross-encoder; None means the
    family's classifier.
    """
    transformer = transformer_config(source)
    in_heads = 1 if heads and not transformer.shared_layers else 0
    body = body_layers if body_layers is not None else transformer.layers - in_heads
    architecture = ArchitectureConfig(
        body_layers=body,
        heads=heads,
        head_layers=transformer.layers - body,
        classifier_activation=FAMILIES[transformer.family].activation,
        classifier_bias=getattr(source, "classifier_bias", True),
        classifier_pooling="mean" if getattr(source, "classifier_pooling", "cls") == "mean" else "first",
        classifier_logits=logits,
    )
    return RankerConfig(
        name=name,
        transformer=transformer,
        architecture=architecture if head is None else head.architecture(architecture),
        exits=exits,
        encoding=encoding or EncodingConfig(),
    )


def load_weights(
    ranker: RankingNetwork | TextRanker | TextVectors,
    weights: Mapping[str, Tensor],
    *,
    names: ImportMapping | None = None,
    fresh_classifier: bool = False,
    assign: bool = False,
) -> None:
    """Load the state dict of a Hugging Face model of the same family into `ranker`.

    Layers b..n-1 and the classifier are copied into every head (CERBERUS section 3). A layer that all depths share is
    copied to the body's one layer and to that of every head. The norm after the last layer, if the family has one, is
    copied to every exit and head. Exits, and all parts of a text ranker but its encoder, keep their random
    initialisation. With `fresh_classifier`, for a model without a classification head, the classifiers of heads keep it
    too.

    `names` is the mapping of a family that is not in `FAMILIES`. With `assign`, the ranker's weights are the same
    tensors, and not copies.

    Raises UnsupportedModelError with the names of all weights that the ranker has no place for, and of all weights that
    the model lacks.
    """
    transformer = ranker.config.body if isinstance(ranker, RankingNetwork) else ranker.config.transformer
    names = names or FAMILIES[transformer.family]
    state = ranker.state_dict()
    filled: set[str] = set()
    surplus: list[str] = []
    for key, value in chain.from_iterable(names.parts(*item) for item in weights.items()):
        name = key.removeprefix(names.prefix)
        if names.unused.search(key) or (fresh_classifier and names.is_classifier(name)):
            continue
        targets = places(name, names, ranker)
        if not targets:
            surplus.append(key)
        for target in targets:
            if target not in state or state[target].shape != value.shape:
                surplus.append(f"{key} {tuple(value.shape)}")
                continue
            state[target] = value.to(state[target].dtype)
            filled.add(target)
    # What no weight of the model fills must be a part that keeps its initialisation.
    copied = ("embeddings.", "body.", "heads.", "norm.")
    fresh = {key for key in state if not key.startswith(copied) or (fresh_classifier and ".classifier." in key)}
    missing = sorted(set(state) - filled - fresh)
    if surplus or missing:
        raise UnsupportedModelError(f"weights do not fit: without a place {surplus}, without a source {missing}")
    ranker.load_state_dict(state, strict=True, assign=assign)


def initialise(module: torch.nn.Module, *, seed: int, deviation: float = 0.02) -> None:
    """Initialise linear layers as BERT does, with normally distributed weights by `seed` and zero biases."""
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, torch.nn.Linear):
            with torch.no_grad():
                part.weight.normal_(0.0, deviation, generator=generator)
                if part.bias is not None:
                    part.bias.zero_()


def places(key: str, names: ImportMapping, ranker: RankingNetwork | TextRanker | TextVectors) -> list[str]:
    """The names in the ranker's state dict to which the weight `key` is copied; empty if there is none."""
    heads = range(len(ranker.heads) if isinstance(ranker, RankingNetwork) else 0)
    if matched := names.layer.match(key):
        name = _renamed(matched[2], names.layer_names)
        return [] if name is None else [f"{place}.{name}" for place in _layer_places(int(matched[1]), ranker)]
    if name := _renamed(key, names.embeddings):
        return [f"embeddings.{name}"]
    if names.output_norm is not None and key.startswith(names.output_norm):
        part = key.removeprefix(names.output_norm)
        if not isinstance(ranker, RankingNetwork):
            return [f"norm.{part}"]
        return [
            f"{place}.norm.{part}"
            for place in (*(f"exits.{i}" for i in range(len(ranker.exits))), *(f"heads.{k}" for k in heads))
        ]
    modular = isinstance(ranker, RankingNetwork) and ranker.config.architecture.classifier_modules
    if name := _renamed(key, {CLASSIFIER: CLASSIFIER} if modular else names.classifier):
        return [f"heads.{k}.{name}" for k in heads]
    return []


def _layer_places(index: int, ranker: RankingNetwork | TextRanker | TextVectors) -> list[str]:
    """The prefixes in the ranker's state dict to which a Hugging Face model's layer `index` is copied."""
    body, heads = len(ranker.body), range(len(ranker.heads) if isinstance(ranker, RankingNetwork) else 0)
    if ranker.encoder.shared_layers:
        separate = isinstance(ranker, RankingNetwork) and ranker.config.architecture.head_layers > 0
        return ["body.0"] * (body > 0) + [f"heads.{k}.layers.0" for k in heads if separate]
    return [f"body.{index}"] if index < body else [f"heads.{k}.layers.{index - body}" for k in heads]


def _renamed(key: str, names: Names) -> str | None:
    for old, new in names.items():
        if key.startswith(old):
            return new + key[len(old) :]
    return None
