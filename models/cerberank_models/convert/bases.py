"""The Hugging Face model that training starts from, as its configuration describes it; no weights are read here."""

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
    """An existing Hugging Face model: an encoder, a sequence classifier, or a modular cross-encoder."""

    source: Source
    described: Any
    """The model's `transformers` configuration. It determines the kind of the model, because weights of poolers and of
    language models' heads may have the same names as those of a classifier."""

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
        """The kind of the model, in words."""
        if (head := self.head()) is not None:
            return f"a modular cross-encoder of {'one logit' if head.labels == 1 else 'two logits'}"
        if self.is_cross_encoder:
            return f"a cross-encoder of {'one logit' if self.described.num_labels == 1 else 'two logits'}"
        return f"a classifier into {self.described.num_labels} labels" if self.classifies else "an encoder"

    def tokenizer(self) -> Any:
        """The model's fast tokenizer. Raises UnsupportedModelError if it has none."""
        return read_tokenizer(self.source)

    def layers(self) -> TransformerConfig:
        """The shape of the model's layers. Raises UnsupportedModelError if this package has no such layers."""
        try:
            return transformer_config(self.described)
        except UnsupportedModelError as error:
            raise UnsupportedModelError(
                f"no student can start from {self.source.place}: {error}. `data score --teacher` takes it as a "
                "teacher of a student with another base, and `cerberank import` serves a cross-encoder as one graph"
            ) from error


def check_room(base: HuggingFaceModel, max_length: int) -> None:
    """Raise UnsupportedModelError if the model has fewer positions than `max_length`.

    Only families with layers in this package are checked, because others may have relative positions.
    """
    try:
        transformer = transformer_config(base.described)
    except UnsupportedModelError:
        return
    if max_length > (room := transformer.max_positions - transformer.position_offset):
        raise UnsupportedModelError(f"--max-length {max_length}: {base.source.place} has {room} positions")


def is_checkpoint(base: str) -> bool:
    """True if `base` is a checkpoint folder of this package, False for a Hugging Face model."""
    return (Path(base) / MANIFEST).is_file()


def open_base(base: str) -> HuggingFaceModel:
    """The model in this folder, or with this id on the hub; only its configuration is loaded.

    Raises SourceError if it does not exist, and UnsupportedModelError if transformers does not know it.
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
    """Open a base for training by transformers. Raises as `open_base`, and UnsupportedModelError for a checkpoint."""
    if is_checkpoint(base):
        raise UnsupportedModelError(
            f"{base} is a Cerberank checkpoint, and teachers are Hugging Face classifiers: `train distil --base "
            f"{base}` trains it further, and `cerberank export {base} OUT --hugging-face` makes a classifier of it"
        )
    return open_base(base)
