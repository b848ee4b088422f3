"""Checks a model's file sizes, links and shapes against limits before any library reads it for an import.

The checks take less than a second and a fixed amount of memory, because only the header of weights is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from safetensors import SafetensorError, safe_open

from cerberank_models.checkpoint.regular import SMALL
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.source import CARD, CONFIG, VOCABULARIES, Source

LARGE = 256 << 20
"""The most bytes of a vocabulary. One of 250,000 tokens takes 33 MB as JSON, and ten times that in memory."""
LARGEST: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(VOCABULARIES, LARGE),
        "merges.txt": LARGE,
        "tokenizer_config.json": 16 * SMALL,
        "added_tokens.json": 16 * SMALL,
        "special_tokens_map.json": SMALL,
        "chat_template.jinja": SMALL,
        "model.safetensors.index.json": 64 * SMALL,
        "pytorch_model.bin.index.json": 64 * SMALL,
        CARD: 16 * SMALL,
    }
)
"""The most bytes of files that a library reads as a whole, by file name."""
WEIGHTS = ("*.safetensors", "*.bin")
MOST: Mapping[str, int] = MappingProxyType(
    {
        "vocab_size": 10_000_000,
        "hidden_size": 65_536,
        "dim": 65_536,
        "embedding_size": 65_536,
        "intermediate_size": 1 << 20,
        "hidden_dim": 1 << 20,
        "num_hidden_layers": 1000,
        "n_layers": 1000,
        "num_attention_heads": 4096,
        "num_key_value_heads": 4096,
        "head_dim": 65_536,
        "type_vocab_size": 65_536,
        "max_position_embeddings": 1 << 24,
        "num_labels": 1 << 20,
    }
)
"""The largest values in a configuration. The largest public models have a tenth of most of them."""
TABLES = ("albert", "bert", "distilbert", "electra", "roberta", "xlm-roberta")
"""The values of `model_type` whose models have a table of positions."""


def check_source(source: Source) -> None:
    """Raise UnsupportedModelError for a model whose files or shapes exceed the limits.

    Rejected are links out of the model's folder, vocabularies and settings that are too large, weights in other formats
    than safetensors, and configurations that need more weights than the files can hold.
    """
    for name, most in LARGEST.items():
        file = source.file(name)
        if file is not None and (size := file.stat().st_size) > most:
            raise UnsupportedModelError(f"{source.place}: {name} has {size} bytes, at most {most} are read")
    if source.commit is None:
        _check_links(source.folder)
    _check_weights(source.folder)
    if not source.is_cerberus:  # the shape of a CERBERUS is that of its tensors
        _check_shape(source, source.optional_json(CONFIG))


def _check_links(folder: Path) -> None:
    """Raise UnsupportedModelError for a link out of the folder; a snapshot of the hub may link to the cache's blobs."""
    roots = [folder.resolve()]
    if folder.resolve().parent.name == "snapshots":
        roots.append(folder.resolve().parent.parent / "blobs")
    for item in folder.rglob("*"):
        if item.is_symlink() and not any(item.resolve().is_relative_to(root) for root in roots):
            raise UnsupportedModelError(
                f"{item} is a link to a place outside of {folder}: copy the files into the folder"
            )


def _check_weights(folder: Path) -> None:
    """Raise UnsupportedModelError for a file of weights in the folder that safetensors cannot read."""
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt"):
                pass
        except SafetensorError as error:
            raise UnsupportedModelError(f"{file} is incomplete, or a git-lfs pointer: {error}") from error


def _check_shape(source: Source, configuration: Any) -> None:
    """Raise UnsupportedModelError for values beyond `MOST`, or if the files cannot hold the weights of this shape."""
    if not isinstance(configuration, dict):
        raise UnsupportedModelError(f"{source.place}: {CONFIG} is not a JSON object")
    for name, most in MOST.items():
        value = configuration.get(name)
        if value is not None and not (isinstance(value, int) and 0 <= value <= most):
            raise UnsupportedModelError(f"{source.place}: {CONFIG} says {name} = {value!r:.50}, at most {most} is read")
    stored = sum(file.stat().st_size for kind in WEIGHTS for file in source.folder.glob(kind))
    if not stored or source.commit is not None:  # no weights, or those that are not loaded from the hub yet
        return
    least = _least_weights(configuration)
    if least > stored:
        raise UnsupportedModelError(
            f"{source.place}: the shape in {CONFIG} has at least {least} weights, and all of its files {stored} bytes"
        )


def _least_weights(configuration: Mapping[str, Any]) -> int:
    """A lower bound of the number of weights of a network with this configuration."""

    def size(*names: str) -> int:
        return next((int(configuration[name]) for name in names if configuration.get(name)), 0)

    width, inner = size("hidden_size", "dim"), size("intermediate_size", "hidden_dim")
    layers = 1 if configuration.get("model_type") == "albert" else size("num_hidden_layers", "n_layers")
    table = size("embedding_size") or width
    rows = size("vocab_size")
    if configuration.get("model_type") in TABLES:
        rows += size("max_position_embeddings")
    return rows * table + layers * width * (width + inner)
