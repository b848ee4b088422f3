"""The Hugging Face model that training starts from, described by its configuration before any weights are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cerberank_models.checkpoint.folder import MANIFEST
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.hugging_face import transformer_config
from cerberank_models.convert.modules import ModularHead, read_modular_head
from cerberank_models.convert.own_network import read_config
from cerberank_models.convert.own_tokenizer import read_tokenizer
from cerberank_models.convert.source import Source, find_source
from cerberank_models.transformer import TransformerConfig


@dataclass(frozen=True, slots=True)
class HuggingFaceModel:
    """A Hugging Face model that exists: an encoder, a sequence classifier, or a modular cross-encoder."""

    source: Source
    described: Any
    """Its `transformers` configuration. What it says counts: poolers and language models' heads may bear the names of a
    classifier's weights."""

    @property
    def classifies(self) -> bool:
        """True for a sequence classifier, of any number of labels."""
        return any(name.endswith("ForSequenceClassification") for name in self.described.architectures or ())

    @property
    def is_cross_encoder(self) -> bool:
        """True for a sequence classifier whose one logit, or whose two, give a pair's score."""
        return self.classifies and self.described.num_labels in (1, 2)

    def head(self) -> ModularHead | None:
        """The modules behind its encoder where it is a modular cross-encoder. Raises UnsupportedModelError."""
        return read_modular_head(self.source)

    @property
    def kind(self) -> str:
        """Its kind, in words."""
        if (head := self.head()) is not None:
            return f"a modular cross-encoder of {'one logit' if head.labels == 1 else 'two logits'}"
        if self.is_cross_encoder:
            return f"a cross-encoder of {'one logit' if self.described.num_labels == 1 else 'two logits'}"
        return f"a classifier into {self.described.num_labels} labels" if self.classifies else "an encoder"

    def tokenizer(self) -> Any:
        """Its fast tokenizer. Raises UnsupportedModelError without one."""
        return read_tokenizer(self.source)

    def layers(self) -> TransformerConfig:
        """Its layers. Raises UnsupportedModelError, which says what is possible, unless its family has them here."""
        try:
            return transformer_config(self.described)
        except UnsupportedModelError as error:
            raise UnsupportedModelError(
                f"no student can start from {self.source.place}: {error}. `data score --teacher` takes it as a "
                "teacher of a student with another base, and `cerberank import` serves a cross-encoder as one graph"
            ) from error


def check_room(base: HuggingFaceModel, max_length: int) -> None:
    """Raise UnsupportedModelError where texts of so many tokens have no positions.

    Only families that have layers here are known well enough: others may have relative positions.
    """
    try:
        transformer = transformer_config(base.described)
    except UnsupportedModelError:
        return
    if max_length > (room := transformer.max_positions - transformer.position_offset):
        raise UnsupportedModelError(f"--max-length {max_length}: {base.source.place} has {room} positions")


def is_checkpoint(base: str) -> bool:
    """True if `base` is a checkpoint folder of ours, rather than a Hugging Face model."""
    return (Path(base) / MANIFEST).is_file()


def open_base(base: str) -> HuggingFaceModel:
    """The model of this folder, or of this id on the hub; only its configuration is loaded.

    Raises SourceError where there is none, UnsupportedModelError for one that transformers does not know.
    """
    source = find_source(base)
    try:
        described = read_config(source)
    except UnsupportedModelError:
        raise
    except (OSError, ValueError) as error:
        raise UnsupportedModelError(f"{base}: {str(error).partition(chr(10))[0]}") from error
    return HuggingFaceModel(source, described)


def open_teacher_base(base: str) -> HuggingFaceModel:
    """As `open_base`, for training by transformers. Raises UnsupportedModelError for a checkpoint of ours."""
    if is_checkpoint(base):
        raise UnsupportedModelError(
            f"{base} is a Cerberank checkpoint, and teachers are Hugging Face classifiers: `train distil --base "
            f"{base}` trains it further, and `cerberank export {base} OUT --hugging-face` makes a classifier of it"
        )
    return open_base(base)
