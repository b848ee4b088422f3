"""Reads a first stage's encoder from a folder or a hub id: a trained text ranker, a sentence encoder, or a ColBERT."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.from_hugging_face import load_weights, transformer_config
from cerberank_models.convert.limits import check_source
from cerberank_models.convert.loading import load_encoder
from cerberank_models.convert.modules import SENTENCE_TRANSFORMERS, listed_modules
from cerberank_models.convert.source import Source, find_source
from cerberank_models.convert.source_network import read_config
from cerberank_models.convert.source_tokenizer import read_tokenizer
from cerberank_models.first_stage.late_interaction import is_late_interaction, late_interaction_encoder
from cerberank_models.first_stage.text_ranker_folder import read_text_ranker, split_weights
from cerberank_models.network.text_ranker import TextRanker, TextVectors
from cerberank_models.text_config import TextEncodingConfig, TextRankerConfig

QUESTION_LENGTH = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class BiEncoder:
    """A first stage before it is attached to a checkpoint."""

    network: TextVectors
    tokenizer: Tokenizer
    weights: Mapping[str, NDArray[np.float32]]
    """The weights of the rankers, by their names in a `TextRanker`."""
    trained_length: int | None = None
    """The most tokens of a document that the text ranker encoded at once in training; None if not recorded."""


def read_bi_encoder(source: str, *, candidate_length: int) -> BiEncoder:
    """Read a text ranker's folder, or a model of sentence-transformers or PyLate in a folder or on the hub.

    Raises UnsupportedModelError, SourceError, OSError.
    """
    if not _is_text_ranker(Path(source)):
        return read_hugging_face(find_source(source), candidate_length=candidate_length)
    saved = read_text_ranker(Path(source))
    if saved.ranker.config.joint:
        raise UnsupportedModelError(f"{source} is joint: it reads question and document together, not each alone")
    trained = saved.ranker.config.encoding
    return replace(
        bi_encoder(saved.ranker, saved.tokenizer, candidate_length=candidate_length),
        trained_length=min(trained.window, trained.document_length),
    )


def read_hugging_face(source: Source, *, candidate_length: int) -> BiEncoder:
    """Read a bi-encoder of sentence-transformers or PyLate, after checking its files and shapes (`check_source`).

    Raises UnsupportedModelError, OSError.
    """
    check_source(source)
    read = late_interaction_encoder if is_late_interaction(source) else _sentence_encoder
    ranker, tokenizer = read(source, candidate_length)
    return bi_encoder(ranker, tokenizer, candidate_length=candidate_length)


def bi_encoder(ranker: TextRanker, tokenizer: Tokenizer, *, candidate_length: int) -> BiEncoder:
    """The first stage with the weights of `ranker` that reads at most `candidate_length` tokens of a candidate.

    Raises UnsupportedModelError for more tokens than the encoder has positions.
    """
    vectors, scorer = split_weights(ranker)
    lengths = ranker.config.encoding.model_copy(
        update={"document_length": candidate_length, "window": candidate_length}
    )
    if (most := ranker.config.room - lengths.special) < candidate_length:
        raise UnsupportedModelError(
            f"--candidate-length {candidate_length} does not fit: the encoder reads at most {most} tokens of a text"
        )
    config = TextRankerConfig.model_validate({**dict(ranker.config), "encoding": lengths})
    named = config.model_copy(update={"encoder": encoder_id(config, tokenizer, vectors)})
    network = TextVectors(named)
    network.load_state_dict(vectors)
    weights = {name: value.numpy() for name, value in scorer.items()}
    return BiEncoder(network=network.eval(), tokenizer=tokenizer, weights=weights)


def encoder_id(config: TextRankerConfig, tokenizer: Tokenizer, weights: Mapping[str, Tensor]) -> str:
    """The SHA-256 of everything on which a text's vector depends, except for the precision.

    The hash covers, one after the other:

    - the config as JSON with sorted keys, without `encoder`, `name` and the part that is read of long questions;
    - the tokenizer's JSON;
    - the name, the shape and the float32 numbers of each weight of the encoder, in the order of names.
    """
    covered = config.model_dump(exclude={"encoder": True, "name": True, "encoding": {"question_part"}})
    digest = hashlib.sha256(json.dumps(covered, sort_keys=True).encode())
    digest.update(tokenizer.to_str().encode())
    for name, value in sorted(weights.items()):
        numbers = value.float().cpu().contiguous().numpy()
        digest.update(f"{name} {numbers.shape}".encode())
        digest.update(numbers.tobytes())
    return digest.hexdigest()


def _is_text_ranker(path: Path) -> bool:
    config = path / "config.json"
    return config.is_file() and json.loads(config.read_bytes()).get("model_type") == "cerberank-text-ranker"


def _sentence_encoder(model: Source, candidate_length: int) -> tuple[TextRanker, Tokenizer]:
    """Read a sentence-transformers model as a text ranker that compares means by their cosine."""
    _check_modules(model)
    transformer = transformer_config(read_config(model))
    tokenizer = read_tokenizer(model, transformer.vocab_size).backend_tokenizer
    lengths = TextEncodingConfig(
        question_length=min(QUESTION_LENGTH, candidate_length),
        question_part="end",
        document_length=candidate_length,
        window=candidate_length,
    )
    ranker = TextRanker(TextRankerConfig(transformer=transformer, token_ranker="dot", encoding=lengths))
    network = load_encoder(model.place, revision=model.commit or "main")
    load_weights(ranker, network.state_dict(), fresh_classifier=True)
    return ranker, tokenizer


def _check_modules(model: Source) -> None:
    """Raise UnsupportedModelError for a sentence encoder with other modules than transformer, mean and norm."""
    source = model.place
    kinds = [kind for kind, _ in listed_modules(model)]
    if unknown := [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")]:
        raise UnsupportedModelError(f"{source} has modules that are not supported: {', '.join(unknown)}")
    pooling = model.optional_json("1_Pooling/config.json")
    if pooling is None:
        raise UnsupportedModelError(f"{source} has no 1_Pooling/config.json that says how tokens become a vector")
    used = [
        key.removeprefix("pooling_mode_")
        for key, on in pooling.items()
        if key.startswith("pooling_mode") and on is True
    ]
    used += [str(pooling["pooling_mode"])] if isinstance(pooling.get("pooling_mode"), str) else []
    if used not in (["mean_tokens"], ["mean"]):
        raise UnsupportedModelError(f"{source} pools by {', '.join(used) or 'nothing'}: only mean_tokens is supported")
    prompts = (model.optional_json(SENTENCE_TRANSFORMERS) or {}).get("prompts") or {}
    if any(prompts.values()):
        raise UnsupportedModelError(f"{source} puts prompts before its texts, which is not supported: {prompts}")
