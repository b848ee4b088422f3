"""The measured networks: the papers' shapes with random weights, created on the device, and their operations.

Speed does not depend on the weights. Rounding errors do: networks with trained weights have larger outliers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import nn

from cerberank_benchmarks.gpu.lab import Lab
from cerberank_benchmarks.weights import MAX_LENGTH, head_width
from cerberank_models.config import ArchitectureConfig, EncodingConfig, ExitConfig, Pooling, RankerConfig
from cerberank_models.drop import DropPolicy
from cerberank_models.encoding import EncodedPairs
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.transformer import TransformerConfig

VOCABULARY = 30_522
"""The size of the vocabulary of BERT and ELECTRA."""
DEVIATION = 0.06
"""Standard deviation of random weights, large enough that scores differ; else equal results would prove nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A network of a paper or a product."""

    name: str
    layers: int
    width: int
    family: Literal["bert", "albert"] = "bert"
    """The family of the encoder; ALBERT uses the same layer at all depths, and embeddings of width 128."""
    heads: int = 1
    """k of B_(n-1) kH_1; 0 for a plain encoder, whose last layer computes all tokens."""
    exits: tuple[int, ...] = ()
    pooling: Pooling = "first"
    """Tokens that the heads' classifiers read; with the mean the heads compute all tokens."""


MINI = Shape(name="MiniLM-L6", layers=6, width=384)
BASE = Shape(name="BASE", layers=12, width=768, heads=0, exits=(12,))
ONE_HEAD = Shape(name="B11 1H1", layers=12, width=768)
THREE_HEADS = Shape(name="B11 3H1", layers=12, width=768, heads=3)
WHOLE_HEADS = Shape(name="B11 3H1, heads on all tokens", layers=12, width=768, heads=3, pooling="mean")
CASCADE = Shape(name="B11 3H1, exits 4 6 8 10", layers=12, width=768, heads=3, exits=(4, 6, 8, 10))
ALBERT_BASE = Shape(name="ALBERT-base", layers=12, width=768, family="albert", heads=0, exits=(12,))
ALBERT_XXLARGE = Shape(name="ALBERT-xxlarge", layers=12, width=4096, family="albert", heads=0, exits=(12,))
LARGE = Shape(name="LARGE", layers=24, width=1024, heads=0, exits=(24,))


def config_of(lab: Lab, shape: Shape) -> RankerConfig:
    """The configuration of the shape, with the lab's width if it has one; for attention heads see `head_width`."""
    width = lab.sizes.width or shape.width
    return RankerConfig(
        name="random",
        transformer=TransformerConfig(
            family=shape.family,
            vocab_size=VOCABULARY,
            hidden_size=width,
            layers=shape.layers,
            attention_heads=width // head_width(width),
            intermediate_size=4 * width,
            max_positions=512,
            embedding_size=min(128, width) if shape.family == "albert" else width,
        ),
        architecture=ArchitectureConfig(
            body_layers=shape.layers - (1 if shape.heads else 0), heads=shape.heads, classifier_pooling=shape.pooling
        ),
        exits=tuple(ExitConfig(after=after) for after in shape.exits),
        encoding=EncodingConfig(max_length=MAX_LENGTH, question_length=64),
    )


def random_ranker(lab: Lab, shape: Shape, *, seed: int = 0) -> RankingNetwork:
    """The network on the lab's device in fp32; the same seed gives the same weights."""
    with torch.device(lab.device):
        ranker = RankingNetwork(config_of(lab, shape))
    generator = torch.Generator(lab.device).manual_seed(lab.seed + seed)
    with torch.no_grad():
        for part in ranker.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                part.weight.normal_(0.0, DEVIATION, generator=generator)
            if isinstance(part, nn.Linear):
                part.bias.zero_()
    return ranker.eval()


def equal_pairs(lab: Lab, count: int) -> EncodedPairs:
    """Random pairs with the lab's number of tokens each."""
    return random_pairs(lab, [lab.sizes.tokens] * count)


def mixed_pairs(lab: Lab, count: int, *, seed: int = 0) -> EncodedPairs:
    """Random pairs with lengths from half to one and a half times the lab's number of tokens."""
    mean = lab.sizes.tokens
    rng = np.random.default_rng([lab.seed, seed])
    return random_pairs(lab, rng.integers(mean // 2, mean + mean // 2, count).tolist(), seed=seed)


def random_pairs(lab: Lab, lengths: Sequence[int], *, seed: int = 0) -> EncodedPairs:
    """Pairs of these lengths with random token ids; the second half of each pair has type 1."""
    rng = np.random.default_rng([lab.seed, seed, 1])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]).astype(np.int64)
    place = np.concatenate([np.arange(length) >= length // 2 for length in lengths])
    return EncodedPairs(
        token_ids=rng.integers(1000, VOCABULARY, offsets[-1]).astype(np.int32),
        type_ids=place.astype(np.int32),
        offsets=offsets,
        truncated=np.zeros(len(lengths), np.bool_),
    )


def operations(config: RankerConfig, candidates: int, tokens: float, policy: DropPolicy | None = None) -> float:
    """Floating-point operations for `candidates` pairs of `tokens` tokens, with drops by `policy`.

    A multiplication and an addition count as two. Only matrix products and attention count, not embeddings, norms and
    activations. A head's last layer computes queries and feed-forward only for the first token, if it reads no other.
    """
    policy = policy or config.drop_policy(0.0)
    width, maps = config.body.hidden_size, config.body.feed_forward_maps
    feed = maps * width * config.body.intermediate_size
    layer = 2 * tokens * (4 * width**2 + feed) + 4 * tokens**2 * width
    architecture = config.architecture
    first = 2 * tokens * 2 * width**2 + 2 * (2 * width**2 + feed) + 4 * tokens * width
    last = first if architecture.classifier_pooling == "first" else layer
    head = (architecture.head_layers - 1) * layer + last + 2 * width**2
    total = 0.0
    for stage, alive in zip(config.stages, policy.expected_alive(candidates), strict=True):
        end = 2 * 2 * width**2 if stage.kind == "exit" else architecture.heads * head
        total += alive * ((stage.stop - stage.start) * layer + end)
    return total
