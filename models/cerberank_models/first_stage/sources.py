"""Where a first stage's encoder comes from: a trained text ranker, or a sentence encoder of the Hugging Face hub.

In: a folder or a hub id. Out: network, tokenizer and the weights of the rankers, or an UnsupportedModelError.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModel, AutoTokenizer
from transformers.utils import cached_file

from cerberank_models.config import FirstStageConfig
from cerberank_models.importing.families import UnsupportedModelError
from cerberank_models.importing.hugging_face import load_weights, transformer_config
from cerberank_models.network.text_ranker.vectors import TextVectors
from cerberank_models.text_ranker_folder import read_text_ranker

UNNAMED = "0" * 64
QUESTION_LENGTH = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class BiEncoder:
    """What a first stage is made of."""

    network: TextVectors
    tokenizer: Tokenizer
    weights: Mapping[str, NDArray[np.float32]]
    """Those of the residual rankers, by their names in a `TextRanker`."""
    trained_length: int | None = None
    """Most tokens of a document that the text ranker encoded at once; None where that is not recorded."""


def read_bi_encoder(source: str, *, candidate_length: int) -> BiEncoder:
    """A text ranker's folder, a sentence-transformers folder, or a hub id. Raises UnsupportedModelError, OSError."""
    if _is_text_ranker(Path(source)):
        return _from_text_ranker(Path(source), candidate_length)
    return _from_sentence_encoder(source, candidate_length)


def encoder_id(network: TextVectors, tokenizer: Tokenizer) -> str:
    """The SHA-256 of everything that a text's vector depends on but the precision.

    These are, one after the other: the first stage's config as JSON without `encoder`, with sorted keys; the
    tokenizer's JSON; and each of the network's weights in the order of their names: name, shape, float32 numbers.
    """
    config = network.config.model_dump(exclude={"encoder"})
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    digest.update(tokenizer.to_str().encode())
    for name, value in sorted(network.state_dict().items()):
        numbers = value.float().cpu().contiguous().numpy()
        digest.update(f"{name} {numbers.shape}".encode())
        digest.update(numbers.tobytes())
    return digest.hexdigest()


def _is_text_ranker(path: Path) -> bool:
    config = path / "config.json"
    return config.is_file() and json.loads(config.read_bytes()).get("model_type") == "cerberank-text-ranker"


def _from_text_ranker(path: Path, candidate_length: int) -> BiEncoder:
    saved = read_text_ranker(path)
    config = saved.ranker.config
    if config.joint:
        raise UnsupportedModelError(f"{path} is joint: it reads question and document together, not each alone")
    first = FirstStageConfig(
        encoder=UNNAMED,
        transformer=config.transformer,
        first_ranker=config.first_ranker is not None,
        token_ranker=config.token_ranker,
        projection=config.projection,
        question_length=config.encoding.question_length,
        candidate_length=candidate_length,
    )
    network, state = TextVectors(first), saved.ranker.state_dict()
    network.load_state_dict({name: state[name] for name in network.state_dict()})
    weights = {name: state[name].numpy() for name in state if name.startswith(first.residual_rankers)}
    length = min(config.encoding.window, config.encoding.document_length)
    return BiEncoder(network=network.eval(), tokenizer=saved.tokenizer, weights=weights, trained_length=length)


def _from_sentence_encoder(source: str, candidate_length: int) -> BiEncoder:
    _check_modules(source)
    described: Any = AutoConfig.from_pretrained(source)
    tokenizer = AutoTokenizer.from_pretrained(source).backend_tokenizer
    if not isinstance(tokenizer, Tokenizer):
        raise UnsupportedModelError(f"{source} has no fast tokenizer (tokenizer.json)")
    first = FirstStageConfig(
        encoder=UNNAMED,
        transformer=transformer_config(described),
        token_ranker="dot",
        question_length=min(QUESTION_LENGTH, candidate_length),
        candidate_length=candidate_length,
    )
    network = TextVectors(first)
    load_weights(network, AutoModel.from_pretrained(source).state_dict(), fresh_classifier=True)
    return BiEncoder(network=network.eval(), tokenizer=tokenizer, weights={})


def _check_modules(source: str) -> None:
    """Raise UnsupportedModelError for a sentence encoder that is more than a transformer, a mean, and a norm."""
    modules = _json(source, "modules.json") or []
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    if unknown := [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")]:
        raise UnsupportedModelError(f"{source} has modules that are not supported: {', '.join(unknown)}")
    pooling = _json(source, "1_Pooling/config.json")
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
    prompts = (_json(source, "config_sentence_transformers.json") or {}).get("prompts") or {}
    if any(prompts.values()):
        raise UnsupportedModelError(f"{source} puts prompts before its texts, which is not supported: {prompts}")


def _json(source: str, name: str) -> Any:
    """The content of a file of the model; None where it has no such file."""
    path = cached_file(source, name, _raise_exceptions_for_missing_entries=False)
    return None if path is None else json.loads(Path(path).read_bytes())
