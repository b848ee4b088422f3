"""The model that a run starts from: its place, its configuration, and the SHA-256 of its files.

A command opens its base once and hands it to everything that reads it. No weights are loaded into memory here.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download, try_to_load_from_cache

from cerberank_models.checkpoint.bound import SHA256
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.manifest import MANIFEST
from cerberank_models.checkpoint.model_card import RUN
from cerberank_models.checkpoint.regular import file_digest
from cerberank_models.convert.checkpoint_cache import trainable
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.from_hugging_face import transformer_config
from cerberank_models.convert.modules import ModularHead, read_modular_head
from cerberank_models.convert.source import Source, SourceError, find_source
from cerberank_models.convert.source_network import read_config
from cerberank_models.convert.source_tokenizer import read_tokenizer
from cerberank_models.transformer import OpaqueTransformer, TransformerConfig
from cerberank_training.runs.run_data import Content

CHECKPOINT = ("config.json", "tokenizer.json", "model.safetensors")
"""The files that identify a checkpoint as a base. The model card is left out, so it may be edited."""
WEIGHTS = ["*.safetensors"]
FILES = [
    *("config.json", *WEIGHTS, "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "*.model"),
    "teacher.json",
]
PICKLED = ["pytorch_model*.bin", "pytorch_model.bin.index.json"]
"""Files of weights that are used if a model has no safetensors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """A checkpoint, or a Hugging Face model: an encoder, a sequence classifier, or a modular cross-encoder."""

    place: str
    """The folder or the id on the hub, as the command names it."""
    folder: Path
    """The folder that the model is loaded from. For a model on the hub it is the snapshot in the local cache, which is
    complete after the first call of `files` or `content`."""
    name: str
    """The last part of the folder's path, or the id on the hub."""
    commit: str | None = None
    """The hub's commit; None for a folder."""
    checkpoint: Checkpoint | None = None
    """The checkpoint; None for a Hugging Face model."""
    described: Any = None
    """The `transformers` configuration of a Hugging Face model. It determines the kind of the model, because weights of
    poolers and of language models' heads may have the same names as those of a classifier."""

    @property
    def source(self) -> Source:
        """The Hugging Face model in `folder`, so that the hub is not asked for its files again."""
        return Source(place=str(self.folder), folder=self.folder, commit=None)

    @property
    def classifies(self) -> bool:
        """True for a sequence classifier, of any number of labels."""
        return any(name.endswith("ForSequenceClassification") for name in self.described.architectures or ())

    @property
    def is_cross_encoder(self) -> bool:
        """True for a sequence classifier with one or two logits, from which the score of a pair is computed."""
        return self.classifies and self.described.num_labels in (1, 2)

    def head(self) -> ModularHead | None:
        """The modules after the encoder of a modular cross-encoder; None otherwise. Raises UnsupportedModelError."""
        return read_modular_head(self.source)

    @property
    def kind(self) -> str:
        """The kind of a Hugging Face model, in words."""
        if (head := self.head()) is not None:
            return f"a modular cross-encoder of {'one logit' if head.labels == 1 else 'two logits'}"
        if self.is_cross_encoder:
            return f"a cross-encoder of {'one logit' if self.described.num_labels == 1 else 'two logits'}"
        return f"a classifier into {self.described.num_labels} labels" if self.classifies else "an encoder"

    def tokenizer(self) -> Any:
        """The fast tokenizer of a Hugging Face model. Raises UnsupportedModelError if it has none."""
        return read_tokenizer(self.source, configuration=self.described)

    def layers(self) -> TransformerConfig | OpaqueTransformer:
        """The shape of the model's layers. Raises UnsupportedModelError if this package has no such layers."""
        if self.checkpoint is not None:
            return self.checkpoint.config.transformer
        try:
            return transformer_config(self.described)
        except UnsupportedModelError as error:
            raise UnsupportedModelError(
                f"no student can start from {self.place}: {error}. `data score --teacher` takes it as a "
                "teacher of a student with another base, and `cerberank import` serves a cross-encoder as one graph"
            ) from error

    def check_room(self, max_length: int) -> None:
        """Raise UnsupportedModelError if the model has fewer positions than `max_length`.

        Only families with layers in this package are checked, because others may have relative positions.
        """
        try:
            layers = self.layers()
        except UnsupportedModelError:
            return
        if max_length > (room := layers.max_positions - layers.position_offset):
            raise UnsupportedModelError(f"--max-length {max_length}: {self.place} has {room} positions")

    def files(self) -> dict[str, Path]:
        """The files of a Hugging Face model, by name. Files on the hub that are not in the cache are downloaded."""
        if self.commit is not None:
            self._download(FILES)
            if not _files(self.folder, WEIGHTS):
                self._download(PICKLED)
        files = _files(self.folder, FILES)
        return files if _files(self.folder, WEIGHTS) else files | _files(self.folder, PICKLED)

    def _download(self, patterns: list[str]) -> None:
        wanted = [*patterns, RUN]  # `training_data` reads it from the folder; it is none of the model's content
        snapshot_download(self.place, revision=self.commit, allow_patterns=wanted, ignore_patterns="*/*")

    def content(self) -> Content:
        """The SHA-256 of each of the model's files. A Hugging Face model's files are read for it, and downloaded."""
        if self.checkpoint is not None:
            files = self.checkpoint.manifest.files
            return {SHA256: {name: files[name] for name in CHECKPOINT if name in files}}
        return {SHA256: {name: file_digest(path) for name, path in self.files().items()}}


def open_base(place: str) -> Base:
    """Open the folder `place`, or the model with this id on the hub, of which only the configuration is loaded.

    A CERBERUS of its authors is imported, once, and opened as the checkpoint that it becomes.

    Raises SourceError if there is no such model; if `place` looks like a path, the message names the folder. Raises
    CheckpointError for a damaged checkpoint, and UnsupportedModelError for a model that transformers does not know.
    """
    folder = Path(place)
    native = Path(trainable(place))
    if (native / MANIFEST).is_file():
        return Base(place=place, folder=native, name=folder.resolve().name, checkpoint=read_checkpoint(native))
    _refuse_missing(place)
    source = find_source(place)
    try:
        described = read_config(source)
    except UnsupportedModelError:
        raise
    except (OSError, ValueError) as error:
        raise UnsupportedModelError(f"{place}: {str(error).partition(chr(10))[0]}") from error
    name = place if source.commit else folder.resolve().name
    return Base(place=place, folder=source.folder, name=name, commit=source.commit, described=described)


def open_hugging_face_base(place: str, *, reason: str) -> Base:
    """Open a base for training by transformers, such as "teachers are Hugging Face classifiers" (`reason`).

    Raises the errors of `open_base`, and UnsupportedModelError for a checkpoint.
    """
    base = open_base(place)
    if base.checkpoint is not None:
        raise UnsupportedModelError(
            f"{place} is a Cerberank checkpoint, and {reason}: `train distil --base {place}` trains it further, and "
            f"`cerberank export {base.folder} OUT --hugging-face` makes a classifier of it"
        )
    return base


def _files(folder: Path, patterns: list[str]) -> dict[str, Path]:
    matches = {path.name: path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    return dict(sorted(matches.items()))


def _refuse_missing(place: str) -> None:
    """Raise SourceError for the path of a missing folder, so that the hub is not asked for it.

    A name with one slash is an id on the hub, unless there is a folder with nearly the same name.
    """
    path = Path(place)
    if path.exists():
        return
    is_path = place.count("/") > 1 or place.startswith((".", "~", "/")) or place.endswith("/")
    near = _near(path)
    if is_path and near is None and not path.parent.is_dir():
        raise SourceError(f"{place}: there is no such folder; there is no folder {path.parent} either")
    if is_path or (near is not None and not isinstance(try_to_load_from_cache(place, "config.json"), str)):
        raise SourceError(f"{place}: there is no such folder" + (f"; did you mean {near}?" if near else ""))


def _near(path: Path) -> Path | None:
    """The folder in the same place whose name is nearly that of `path`; None if there is none."""
    try:
        folders = [each.name for each in path.parent.iterdir() if each.is_dir()]
    except OSError:
        return None
    near = get_close_matches(path.name, folders, n=1)
    return path.parent / near[0] if near else None
