"""Small first stages with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tests.text_rankers import COLBERT, TR_COLBERT, TR_TWIN, TWIN, text_ranker
from tests.tiny import bert_tokenizer

from cerberank_models.backends.stage_contract import Vector
from cerberank_models.checkpoint.folder import Checkpoint, copy_checkpoint
from cerberank_models.checkpoint.manifest import Manifest
from cerberank_models.first_stage import bi_encoders
from cerberank_models.first_stage.attach import attach
from cerberank_models.first_stage.bi_encoders import BiEncoder
from cerberank_models.network.text_ranker import Side, TextRanker, TextVectors
from cerberank_models.text_config import TextEncodingConfig, TextRankerConfig

SHAPES: dict[str, dict[str, Any]] = {
    "dot": {"token_ranker": "dot"},
    "twin": TWIN,
    "colbert": COLBERT,
    "first": {"first_ranker": "residual"},
    "tr-twin": TR_TWIN,
    "tr-colbert": TR_COLBERT,
}
ENCODER = "0" * 64
ENCODING = TextEncodingConfig(question_length=8, document_length=16, window=16)


def ranker_of(shape: dict[str, Any], *, seed: int = 0, question_length: int = 12, **changes: Any) -> TextRanker:
    """A text ranker with the same weights as a first stage of this shape."""
    encoding = ENCODING.model_copy(update={"question_length": question_length})
    return text_ranker(shape, seed=seed, encoding=encoding, **changes)


def first_stage_config(**shape: Any) -> TextRankerConfig:
    """The config of a first stage with the encoder of `ranker_of`."""
    transformer = ranker_of({"token_ranker": "twin"}).config.transformer
    settings = {"encoder": ENCODER, "encoding": ENCODING, "projection": 8} | shape
    return TextRankerConfig(transformer=transformer, **settings)


def network_of(ranker: TextRanker, config: TextRankerConfig) -> TextVectors:
    """The encoder of `ranker` with its weights."""
    network = TextVectors(config)
    state = ranker.state_dict()
    network.load_state_dict({name: state[name] for name in network.state_dict()})
    return network.eval()


def scorer_weights(ranker: TextRanker, config: TextRankerConfig) -> dict[str, NDArray[np.float32]]:
    """The weights of its residual rankers, by name."""
    state = ranker.state_dict()
    return {name: state[name].numpy() for name in state if name.startswith(tuple(config.weighted_rankers) or ("-",))}


def vectors(side: Side, shape: dict[str, Any]) -> list[Vector]:
    """Flat vectors of each text, part by part as `TextRankerConfig` describes them."""
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
    ranker = ranker_of(shape, seed=seed, question_length=8)
    return bi_encoders.bi_encoder(ranker, bert_tokenizer(), candidate_length=candidate_length)


def attached(plain: Checkpoint, path: Path, name: str = "tr-twin", **changes: Any) -> Checkpoint:
    """`plain` with a first stage of the shape `name`, by default of ranker 1 and TwinBERT's, with dropping.

    TwinBERT's mean is that of the text's own tokens.
    """
    shape = SHAPES[name]
    encoder = bi_encoder(**shape, **({"mean": "text"} if shape.get("token_ranker") == "twin" else {}))
    return attach(plain, encoder, path, source="tests", **{"alpha": 0.5} | changes)


def without(checkpoint: Checkpoint, path: Path, name: str) -> Path:
    """A copy whose manifest does not name one of the files."""
    copy_checkpoint(checkpoint.path, path)
    (path / name).unlink()
    manifest = checkpoint.manifest.model_dump()
    del manifest["files"][name]
    (path / "manifest.json").write_text(Manifest.model_validate(manifest).model_dump_json())
    return path
