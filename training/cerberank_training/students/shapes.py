"""Builds a student's network from a pretrained encoder, or from a checkpoint that is trained further."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModel, AutoTokenizer

from cerberank_models.backends.torch_backend import load_ranker
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.config import EncodingConfig, ExitConfig, RankerConfig
from cerberank_models.encoding import PairEncoder
from cerberank_models.importing.families import UnsupportedModelError
from cerberank_models.importing.hugging_face import initialise, load_weights, ranker_config
from cerberank_models.importing.token_types import grow_token_types
from cerberank_models.network.ranker import Ranker


@dataclass(frozen=True, kw_only=True, slots=True)
class StudentShape:
    """`B_b kH_h` with exits; n = b + h is the base's depth, or `layers`."""

    name: str
    body_layers: int
    heads: int
    exits: tuple[ExitConfig, ...] = ()
    encoding: EncodingConfig
    layers: int | None = None
    """How many of the base's first layers are used: for a student shallower than its base, or as deep as an exit."""
    token_types: Literal["shared", "fresh", "copied"] = "shared"
    """How the third segment gets a token type that an encoder lacks (`grow_token_types`); `shared`: the last one."""


@dataclass(frozen=True, slots=True)
class Student:
    """A network with the tokenizer that belongs to it."""

    ranker: Ranker
    tokenizer: Tokenizer

    def encoder(self) -> PairEncoder:
        """A new pair encoder for this student."""
        config = self.ranker.config
        return PairEncoder(
            Tokenizer.from_str(self.tokenizer.to_str()),
            family=config.transformer.family,
            config=config.encoding,
            type_vocab_size=config.transformer.type_vocab_size,
        )


def build_student(shape: StudentShape, base: str, *, seed: int, dropout: float) -> Student:
    """The student before its first training step.

    `base` is a path or hub id of an encoder, or a checkpoint folder with weights of the same architecture.
    New parts, the exits and the heads' classifiers, get random weights, each head from a seed of its own: with hard
    labels nothing else makes the heads differ. Raises UnsupportedModelError when the base does not fit.
    """
    if (Path(base) / "manifest.json").is_file():
        return _from_checkpoint(shape, Path(base), seed=seed, dropout=dropout)
    encoder = pretrained_encoder(base, layers=shape.layers)
    if shape.token_types != "shared":
        grow_token_types(encoder, shape.encoding.segments, new=shape.token_types, seed=seed)
    config = ranker_config(
        encoder.config,
        name=shape.name,
        body_layers=shape.body_layers,
        heads=shape.heads,
        exits=shape.exits,
        encoding=shape.encoding,
    )
    ranker = Ranker(config, dropout=dropout)
    load_weights(ranker, encoder.state_dict(), fresh_classifier=True)
    initialise(ranker.exits, seed=seed)
    for index, head in enumerate(ranker.heads):
        initialise(head.get_submodule("classifier"), seed=seed + 1 + index)
    return Student(ranker, AutoTokenizer.from_pretrained(base).backend_tokenizer)


def pretrained_encoder(base: str, *, layers: int | None) -> Any:
    """The Hugging Face encoder `base`, a path or hub id, or its first `layers` layers.

    Raises UnsupportedModelError when it has fewer.
    """
    depth = AutoConfig.from_pretrained(base).num_hidden_layers
    if layers is not None and not 0 < layers <= depth:
        raise UnsupportedModelError(f"{base} has {depth} layers, not {layers}")
    return AutoModel.from_pretrained(base, num_hidden_layers=layers or depth)


def _from_checkpoint(shape: StudentShape, path: Path, *, seed: int, dropout: float) -> Student:
    """Put the checkpoint's weights into the given shape; additional heads are copies of its first head."""
    checkpoint = read_checkpoint(path)
    if checkpoint.config.first_stage is not None:
        raise UnsupportedModelError(f"{path} has a first stage, which a student does not keep: add it to the student")
    if shape.token_types != "shared" and checkpoint.config.transformer.type_vocab_size < shape.encoding.segments:
        raise UnsupportedModelError(f"{path} keeps its table of token types: token_types must be shared")
    source = load_ranker(checkpoint)
    have, architecture = checkpoint.config, checkpoint.config.architecture
    if shape.body_layers != architecture.body_layers:
        raise UnsupportedModelError(f"{path} is {architecture}, its body does not have {shape.body_layers} layers")
    config = RankerConfig.model_validate(
        {
            **have.model_dump(),
            "name": shape.name,
            "architecture": {**architecture.model_dump(), "heads": shape.heads},
            "exits": [exit_.model_dump() for exit_ in shape.exits],
            "encoding": shape.encoding.model_dump(),
            "drop_schedule": [],
        }
    )
    ranker = Ranker(config, dropout=dropout)
    initialise(ranker.exits, seed=seed)
    ranker.embeddings.load_state_dict(source.embeddings.state_dict())
    ranker.body.load_state_dict(source.body.state_dict())
    for index, head in enumerate(ranker.heads):
        head.load_state_dict(source.heads[index if index < len(source.heads) else 0].state_dict())
    for exit_, own in zip(ranker.exits, config.exits, strict=True):
        if own in have.exits:
            exit_.load_state_dict(source.exits[have.exits.index(own)].state_dict())
    return Student(ranker, Tokenizer.from_file(str(path / "tokenizer.json")))
