"""The options of `cerberank import`, and what every kind of import knows of its model."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from cerberank_models.commands.values import Count, Names
from cerberank_models.config import EncodingConfig
from cerberank_models.convert.checkpoint import Questions
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.source import Source
from cerberank_models.convert.source_tokenizer import MOST_TOKENS
from cerberank_models.convert.teacher_input import FILE, TeacherInput
from cerberank_models.windows import Reading

logger = logging.getLogger(__name__)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """The options of the command, other than the model and the folder to make."""

    revision: str | None = None
    """Branch, tag or commit of a model on the hub (default: main)."""
    name: str | None = None
    """Name of the model (default: made from the last part of the source)."""
    max_length: Count | None = None
    """Tokens of a pair, or of a ColBERT's candidate (default: the model's, at most 512)."""
    windows: Annotated[
        Reading | None,
        Parameter(
            help="Reading of texts that do not fit, where a request names none: the best or the mean score of their "
            "windows, or cut (default: best; off for a CERBERUS)."
        ),
    ] = None
    context: bool = False
    """Read the previous and the next sentence as a third segment; not needed for a teacher's folder."""
    forms: Names = ("fp32", "int8")
    """ONNX forms to write beside the weights, separated by commas; none for weights alone."""
    opaque: bool = False
    """Import as one graph without exits and heads, as for families whose layers are not supported."""
    tokenizer: str | None = None
    """Folder or hub id of a model with the tokenizer of a CERBERUS (default: in its folder, else
    google/electra-base-discriminator)."""
    prompt: Annotated[
        str | None,
        Parameter(
            help="Text around a decoder's questions, if its name does not determine it (qwen3-reranker, "
            "mxbai-rerank-v2, zerank, or a JSON file)."
        ),
    ] = None


USUAL = ImportOptions()


@dataclass(frozen=True, kw_only=True, slots=True)
class Import:
    """One import: the model, and what was asked for."""

    source: Source
    configuration: Any
    """The model's `transformers` configuration; None for a CERBERUS of its authors, which has none."""
    out: Path
    name: str
    options: ImportOptions
    calibration: Questions
    """The questions on which int8 ranges are measured; empty for the golden texts alone."""

    @property
    def place(self) -> str:
        """The folder or the id of the model, as it was given."""
        return self.source.place

    @property
    def version(self) -> str:
        """The version of the checkpoint: the beginning of its commit, or of the hash of its content without one."""
        return self.source.content()[:12]

    @property
    def vocabulary(self) -> int | None:
        """The number of the network's token embeddings, as far as the configuration states it."""
        return getattr(self.configuration, "vocab_size", None)

    def check_length(self, most: int, room: str) -> None:
        """Raise UnsupportedModelError if the option `max_length` is more than `most`, the model's `room`."""
        if self.options.max_length is not None and self.options.max_length > most:
            raise UnsupportedModelError(f"max_length {self.options.max_length} is more than the {most} {room}")

    def length(self, most: int) -> int:
        """The tokens of a pair: the option, or else the model's number `most` up to the default limit."""
        if self.options.max_length is None and most > MOST_TOKENS:
            logger.warning(
                "pairs are cut at %d of the %d tokens that %s reads; --max-length sets another number",
                MOST_TOKENS,
                most,
                self.place,
            )
            return MOST_TOKENS
        return self.options.max_length or most

    def encoding(self, most: int) -> EncodingConfig:
        """The encoding of pairs for a model that reads `most` tokens, by the options or by a teacher's file."""
        if not (Path(self.place) / FILE).is_file():
            read = TeacherInput(max_length=self.length(most), context=self.options.context)
            return self.with_windows(read.encoding())
        teacher = TeacherInput.read(self.place)
        if self.options.context and not teacher.context:
            raise UnsupportedModelError(f"{self.place} does not read context: its {FILE} says so")
        length = self.options.max_length or min(most, teacher.max_length)
        return self.with_windows(teacher.model_copy(update={"max_length": length}).encoding())

    def with_windows(self, encoding: EncodingConfig, default: Reading = "best") -> EncodingConfig:
        """The encoding with the reading of texts that do not fit: that of the option `windows`, or `default`."""
        return encoding.model_copy(update={"windows": self.options.windows or default})
