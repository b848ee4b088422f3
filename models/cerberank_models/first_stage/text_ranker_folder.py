"""The folder of a text ranker, which is written atomically and verified when it is read.

    config.json  tokenizer.json  model.safetensors  [scorer.safetensors]  manifest.json

A checkpoint with a first stage has the same files in `first-stage/`. The weights of the encoder and those of the
rankers that score its vectors are separate files. The manifest states each file's SHA-256, as in a checkpoint. Pickle
is never used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from cerberank_models.checkpoint.atomic import appearing_folder, write_bytes
from cerberank_models.checkpoint.folder import ChangedFileError, CheckpointError, MissingFileError
from cerberank_models.checkpoint.manifest import MANIFEST, Manifest
from cerberank_models.checkpoint.regular import file_digest, read_regular
from cerberank_models.network.text_ranker import TextRanker
from cerberank_models.text_config import TextRankerConfig
from cerberank_models.text_encoding import TextEncoder

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
WEIGHTS, SCORER = "model.safetensors", "scorer.safetensors"


@dataclass(frozen=True, slots=True)
class SavedTextRanker:
    """A network and its tokenizer."""

    ranker: TextRanker
    tokenizer: Tokenizer
    manifest: Manifest

    def encoder(self) -> TextEncoder:
        """A new encoder for this ranker."""
        return TextEncoder(self.tokenizer, self.ranker.config)


def write_text_ranker(
    path: Path,
    ranker: TextRanker,
    tokenizer: Tokenizer,
    *,
    version: str,
    source: str,
    metrics: Mapping[str, float] | None = None,
) -> None:
    """Write the folder `path`. Raises FileExistsError if it exists. After an error nothing is left behind."""
    with appearing_folder(path) as partial:
        write_bytes(partial / CONFIG, ranker.config.model_dump_json(indent=2).encode() + b"\n")
        write_bytes(partial / TOKENIZER, tokenizer.to_str().encode())
        vectors, scorer = split_weights(ranker)
        for name, weights in ((WEIGHTS, vectors), (SCORER, scorer)):
            if weights:
                save_file(weights, partial / name)
                with (partial / name).open("rb+") as file:
                    os.fsync(file.fileno())
        manifest = Manifest(
            version=version,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            source=source,
            metrics=dict(metrics or {}),
            files={name: file_digest(partial / name) for name in _files(ranker.config)},
        )
        write_bytes(partial / MANIFEST, manifest.model_dump_json(indent=2).encode() + b"\n")


def read_text_ranker(path: Path) -> SavedTextRanker:
    """Verify the folder's files, and load the network in fp32 on the CPU in evaluation mode.

    Raises CheckpointError, or one of its subclasses for a missing or changed file.
    """
    try:
        manifest = Manifest.model_validate_json(read_regular(path / MANIFEST))
        config = TextRankerConfig.model_validate_json(read_regular(path / CONFIG))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFileError(f"{path} is not a text ranker, or its copy was not finished: {error}") from error
    except ValidationError as error:
        raise CheckpointError(f"{path} is not a text ranker: {error}") from error
    for name in _files(config):
        if not (path / name).is_file():
            raise MissingFileError(f"{path} lacks {name}: its copy was not finished")
        if file_digest(path / name) != manifest.files.get(name):
            raise ChangedFileError(f"{path / name} does not have the SHA-256 that the manifest states")
    ranker = TextRanker(config).eval()
    try:
        state = load_file(path / WEIGHTS) | (load_file(path / SCORER) if config.weighted_rankers else {})
        ranker.load_state_dict(state, strict=True)
        tokenizer = Tokenizer.from_file(str(path / TOKENIZER))
    except (RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"{path}: the weights do not fit {CONFIG}: {error}") from error
    return SavedTextRanker(ranker, tokenizer, manifest)


def split_weights(ranker: TextRanker) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights of a text ranker's encoder, including ColBERT's projection, and those of its rankers, by name."""
    state = {name: value.detach().cpu().contiguous() for name, value in ranker.state_dict().items()}
    parts = tuple(f"{part}." for part in ranker.config.weighted_rankers)
    scorer = {name: value for name, value in state.items() if name.startswith(parts)}
    return {name: value for name, value in state.items() if name not in scorer}, scorer


def _files(config: TextRankerConfig) -> tuple[str, ...]:
    return (CONFIG, TOKENIZER, WEIGHTS, *([SCORER] if config.weighted_rankers else []))
