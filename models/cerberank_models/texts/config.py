"""The shape of a text ranker, as `config.json` of its folder states it (TRMD section 3)."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cerberank_models.transformer import PAIR_TEMPLATES, Count, Frozen, TransformerConfig


class TextEncodingConfig(Frozen):
    """How questions and documents become token ids, apart from each other; lengths are tokens without special ones."""

    question_length: Count = 64
    """Most tokens of a question."""
    document_length: Count = 800
    """Most tokens of a document (TRMD section 4)."""
    window: Count = 384
    """Most tokens of a document that are encoded at once; a longer one is read in several windows."""


class TextRankerConfig(Frozen):
    """Everything that is needed to rebuild the network.

    `joint` False is a bi-encoder: it reads the question alone and the document alone. True is a cross-encoder: it reads
    both at once. monoBERT is joint with `first_ranker` linear; TwinBERT and ColBERT are bi-encoders with a
    `token_ranker` alone; TRMD's students have a residual `first_ranker` and a `token_ranker`.
    """

    model_type: Literal["cerberank-text-ranker"] = "cerberank-text-ranker"
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$")]
    transformer: TransformerConfig
    joint: bool = False
    first_ranker: Literal["linear", "residual"] | None = None
    """Ranker 1 reads first tokens: monoBERT's linear classifier, or TRMD's with a residual."""
    token_ranker: Literal["twin", "colbert"] | None = None
    """Ranker 2 reads all tokens."""
    projection: Count = 128
    """Width of ColBERT's token vectors."""
    encoding: TextEncodingConfig = TextEncodingConfig()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.first_ranker is None and self.token_ranker is None:
            raise ValueError("a text ranker needs first_ranker or token_ranker")
        if self.first_ranker == "linear" and not self.joint:
            raise ValueError("a linear first_ranker reads question and document together: it needs joint")
        if self.longest > self.room:
            raise ValueError(
                f"question_length, window and special tokens are {self.longest}, the encoder has {self.room} positions"
            )
        return self

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that a joint encoder of the same texts reads, special tokens included."""
        special = 2 + PAIR_TEMPLATES[self.transformer.family].between
        return self.encoding.question_length + self.encoding.window + special

    @property
    def room(self) -> int:
        """The number of positions that the encoder has."""
        return self.transformer.max_positions - self.transformer.position_offset
