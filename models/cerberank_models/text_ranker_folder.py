"""The folder of a text ranker: written atomically, verified when it is read.

    config.json  tokenizer.json  model.safetensors  manifest.json

The manifest states each file's SHA-256, as a checkpoint's does. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from cerberank_models.checkpoint.atomic import appearing_folder, write_bytes
from cerberank_models.checkpoint.folder import ChangedFileError, CheckpointError, MissingFileError
from cerberank_models.checkpoint.manifest import Manifest
from cerberank_models.checkpoint.regular import read_regular
from cerberank_models.network.text_ranker.ranker import TextRanker
from cerberank_models.texts.config import TextRankerConfig
from cerberank_models.texts.encoding import TextEncoder

CONFIG, TOKENIZER, WEIGHTS, MANIFEST = "config.json", "tokenizer.json", "model.safetensors", "manifest.json"


@dataclass(frozen=True, slots=True)
class SavedTextRanker:
    """A network with the tokenizer that belongs to it."""

    ranker: TextRanker
    tokenizer: Tokenizer
    manifest: Manifest

    def encoder(self) -> TextEncoder:
        """A new encoder for this ranker."""
        return text_encoder(self.ranker.config, self.tokenizer)


def text_encoder(config: TextRankerConfig, tokenizer: Tokenizer) -> TextEncoder:
    """An encoder with a copy of `tokenizer`."""
    return TextEncoder(Tokenizer.from_str(tokenizer.to_str()), family=config.transformer.family, config=config.encoding)


def write_text_ranker(
    path: Path,
    ranker: TextRanker,
    tokenizer: Tokenizer,
    *,
    version: str,
    source: str,
    metrics: Mapping[str, float] | None = None,
) -> None:
    """Write the folder `path`; raises FileExistsError when it exists. After an error nothing is left behind."""
    with appearing_folder(path) as partial:
        write_bytes(partial / CONFIG, ranker.config.model_dump_json(indent=2).encode() + b"\n")
        write_bytes(partial / TOKENIZER, tokenizer.to_str().encode())
        state = {name: value.detach().cpu().contiguous() for name, value in ranker.state_dict().items()}
        save_file(state, partial / WEIGHTS)
        with (partial / WEIGHTS).open("rb+") as file:
            os.fsync(file.fileno())
        manifest = Manifest(
            version=version,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            source=source,
            metrics=dict(metrics or {}),
            files={name: _digest(partial / name) for name in (CONFIG, TOKENIZER, WEIGHTS)},
        )
        write_bytes(partial / MANIFEST, manifest.model_dump_json(indent=2).encode() + b"\n")


def read_text_ranker(path: Path, *, dropout: float = 0.0) -> SavedTextRanker:
    """Verify the folder's files and load the network, in fp32 on the CPU, in evaluation mode.

    Raises CheckpointError, or its subclasses for a file that is missing or was changed.
    """
    if missing := [name for name in (CONFIG, TOKENIZER, WEIGHTS, MANIFEST) if not (path / name).is_file()]:
        raise MissingFileError(f"{path} is no text ranker, or its copy was not finished: it lacks {', '.join(missing)}")
    try:
        manifest = Manifest.model_validate_json(read_regular(path / MANIFEST))
        config = TextRankerConfig.model_validate_json(read_regular(path / CONFIG))
    except ValidationError as error:
        raise CheckpointError(f"{path} is no text ranker: {error}") from error
    for name in (CONFIG, TOKENIZER, WEIGHTS):
        if _digest(path / name) != manifest.files.get(name):
            raise ChangedFileError(f"{path / name} does not have the SHA-256 that the manifest states")
    ranker = TextRanker(config, dropout=dropout).eval()
    try:
        ranker.load_state_dict(load_file(path / WEIGHTS), strict=True)
        tokenizer = Tokenizer.from_file(str(path / TOKENIZER))
    except (RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"{path / WEIGHTS} does not fit {CONFIG}: {error}") from error
    return SavedTextRanker(ranker, tokenizer, manifest)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
