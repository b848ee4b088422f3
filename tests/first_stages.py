"""Small first stages with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tests.text_rankers import text_ranker
from tests.tiny import bert_tokenizer

from cerberank_models.backends.contract import Vector
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.config import FirstStageConfig
from cerberank_models.first_stage.attach import attach
from cerberank_models.first_stage.sources import BiEncoder
from cerberank_models.network.text_ranker.ranker import TextRanker
from cerberank_models.network.text_ranker.side import Side
from cerberank_models.network.text_ranker.vectors import TextVectors

SHAPES: list[dict[str, Any]] = [
    {"token_ranker": "dot"},
    {"token_ranker": "twin"},
    {"token_ranker": "colbert"},
    {"first_ranker": True},
    {"first_ranker": True, "token_ranker": "twin"},
    {"first_ranker": True, "token_ranker": "colbert"},
]
NAMES = ["dot", "twin", "colbert", "first", "tr-twin", "tr-colbert"]
ENCODER = "0" * 64


def ranker_of(shape: dict[str, Any], *, seed: int = 0, **changes: Any) -> TextRanker:
    """A text ranker with the same weights as a first stage of this shape; for `dot` its own ranker is not used."""
    kind = shape.get("token_ranker")
    first = "residual" if shape.get("first_ranker") else None
    ranker = {"first_ranker": first, "token_ranker": "twin" if kind == "dot" else kind}
    return text_ranker(ranker, seed=seed, **changes)


def first_stage_config(**shape: Any) -> FirstStageConfig:
    """The config of a first stage with the encoder of `ranker_of`."""
    transformer = ranker_of({"token_ranker": "twin"}).config.transformer
    settings = {"encoder": ENCODER, "question_length": 8, "candidate_length": 16, "projection": 8} | shape
    return FirstStageConfig(transformer=transformer, **settings)


def network_of(ranker: TextRanker, config: FirstStageConfig) -> TextVectors:
    """The encoder of `ranker` with its weights."""
    network = TextVectors(config)
    state = ranker.state_dict()
    network.load_state_dict({name: state[name] for name in network.state_dict()})
    return network.eval()


def scorer_weights(ranker: TextRanker, config: FirstStageConfig) -> dict[str, NDArray[np.float32]]:
    """The weights of its residual rankers, by name."""
    state = ranker.state_dict()
    return {name: state[name].numpy() for name in state if name.startswith(tuple(config.residual_rankers) or ("-",))}


def vectors(side: Side, shape: dict[str, Any]) -> list[Vector]:
    """Flat vectors of each text, part by part as `FirstStageConfig` describes them."""
    made = []
    for row, (start, stop) in enumerate(zip(side.offsets[:-1], side.offsets[1:], strict=True)):
        own, parts = side.tokens[start:stop], []
        if shape.get("first_ranker"):
            parts.append(side.first[row])
        if shape.get("token_ranker") == "dot":
            parts.append(torch.nn.functional.normalize(own.mean(dim=0), dim=0))
        if shape.get("token_ranker") == "twin":
            parts.append(own.mean(dim=0))
        if shape.get("token_ranker") == "colbert":
            parts.append(own.flatten())
        made.append(torch.cat(parts).detach().numpy().astype(np.float16))
    return made


def bi_encoder(*, seed: int = 0, candidate_length: int = 16, **shape: Any) -> BiEncoder:
    """A first stage's encoder with its rankers' weights and a tokenizer."""
    ranker, config = ranker_of(shape, seed=seed), first_stage_config(candidate_length=candidate_length, **shape)
    network = network_of(ranker, config)
    return BiEncoder(network=network, tokenizer=bert_tokenizer(), weights=scorer_weights(ranker, config))


def attached(plain: Checkpoint, path: Path, **changes: Any) -> Checkpoint:
    """`plain` with a first stage of ranker 1 and TwinBERT's, with dropping."""
    encoder = bi_encoder(first_ranker=True, token_ranker="twin")
    return attach(plain, encoder, path, source="tests", **{"alpha": 0.5} | changes)
