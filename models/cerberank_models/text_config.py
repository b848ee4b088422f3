"""The shape of a text ranker, as `config.json` of its folder and `first_stage` of a checkpoint's state it.

In: JSON (unknown keys are refused). Out: frozen models that the encoders of a first stage and the training of
bi-encoders read. Pure data: no torch, no files.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cerberank_models.transformer import PAIR_TEMPLATES, Count, Frozen, TransformerConfig


class ColbertTokens(Frozen):
    """The tokens that ColBERT adds to texts and leaves out of them, by their ids."""

    question_mark: int
    """It follows the first token of a question."""
    document_mark: int
    """It follows the first token of a document, in every window."""
    fill: int | None = None
    """It fills a question behind its separator, and takes part in late interaction; None where questions are as long as
    their texts."""
    filled: Annotated[Count | None, Field(exclude_if=lambda filled: filled is None)] = None
    """Tokens of a text up to which a question is filled; None, and left out of `config.json`, for `question_length`."""
    attends: Annotated[bool, Field(exclude_if=lambda attends: not attends)] = False
    """True if tokens attend to what fills a question."""
    skipped: tuple[int, ...] = ()
    """Tokens of documents, punctuation, that take no part in late interaction."""

    @property
    def unattended(self) -> int | None:
        """The token of a question that no token attends to; None without."""
        return None if self.attends else self.fill


class TextEncodingConfig(Frozen):
    """The rules that turn questions and documents into token ids, apart from each other; lengths are tokens without
    special ones.
    """

    question_length: Count = 64
    """Most tokens of a question; the rest is not read."""
    document_length: Count = 800
    """Most tokens of a document, or of a candidate in front of the stages of pairs (TRMD section 3.1.3)."""
    window: Count = 384
    """Most tokens of a document that are encoded at once; a longer one is read in several windows."""
    colbert: Annotated[ColbertTokens | None, Field(exclude_if=lambda colbert: colbert is None)] = None
    """None, and left out of `config.json`, for texts as they are, between the family's special tokens."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.colbert is not None and (self.colbert.filled or 0) > self.question_length:
            raise ValueError(f"filled must be at most question_length, {self.question_length}")
        return self

    @property
    def special(self) -> int:
        """Special tokens of a text that is read alone."""
        return 2 if self.colbert is None else 3


class TextRankerConfig(Frozen):
    """A ranker of texts, as `config.json` of its folder or `first_stage` of a checkpoint states it (TRMD section 2.1).

    `joint` False is a bi-encoder: it reads the question alone and the document alone, so that it can be a first stage.
    A text's vector is then the concatenation of what the rankers read: the first token's vector (CLS) for
    `first_ranker`, then for `token_ranker` the mean of all tokens' vectors (`twin`; `dot` scales it to length 1) or
    every token's projected vector of length 1 (`colbert`).

    `joint` True is a cross-encoder: it reads both at once. monoBERT is joint with `first_ranker` linear; TwinBERT and
    ColBERT are bi-encoders with a `token_ranker` alone; TRMD's students have a residual `first_ranker` and a
    `token_ranker`.
    """

    model_type: Literal["cerberank-text-ranker"] = "cerberank-text-ranker"
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$")] = "text-ranker"
    encoder: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = "0" * 64
    """Identifies tokenizer, weights and lengths of a first stage: a text's vectors are interchangeable where this is
    equal. Zeros in a text ranker's own folder, because a first stage may cut texts elsewhere."""
    transformer: TransformerConfig
    joint: bool = False
    first_ranker: Literal["linear", "residual"] | None = None
    """Ranker 1 reads first tokens: monoBERT's linear classifier, or TRMD's with a residual."""
    token_ranker: Literal["twin", "colbert", "dot"] | None = None
    """Ranker 2 reads all tokens; `dot` is the cosine of means, without weights, as sentence-transformers' bi-encoders
    are trained."""
    mean: Annotated[Literal["all", "text"], Field(exclude_if=lambda mean: mean == "all")] = "all"
    """Tokens of TwinBERT's mean: all of them, or those of the text without the special ones around it, as TRMD's
    released code has them. Left out of `config.json` where it says what earlier releases take for granted."""
    projection: Count = 128
    """Width of ColBERT's token vectors."""
    encoding: TextEncodingConfig = TextEncodingConfig()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.transformer.decoder is not None or not self.transformer.layers:
            raise ValueError("a text ranker has an encoder with layers, not a decoder")
        if self.first_ranker is None and self.token_ranker is None:
            raise ValueError("a text ranker needs first_ranker or token_ranker")
        if self.first_ranker == "linear" and not self.joint:
            raise ValueError("a linear first_ranker reads question and document together: it needs joint")
        if self.token_ranker == "dot" and (self.first_ranker or self.joint):
            raise ValueError("token_ranker dot has no weights and goes with neither first_ranker nor joint")
        if self.mean != "all" and self.token_ranker != "twin":
            raise ValueError(f"mean {self.mean} is of TwinBERT's ranker: it needs token_ranker twin")
        if self.encoding.colbert is not None and (self.joint or self.token_ranker != "colbert"):
            raise ValueError("encoding.colbert is of a bi-encoder with token_ranker colbert")
        alone = self.encoding.special + max(self.encoding.question_length, self.encoding.window)
        longest = self.longest if self.joint else alone
        if longest > self.room:
            raise ValueError(
                f"question_length, window and special tokens are {longest}, the encoder has {self.room} positions"
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

    @property
    def fixed_width(self) -> int:
        """The number of a vector's numbers that do not depend on the text's length: all but ColBERT's token vectors."""
        parts = (self.first_ranker is not None) + (self.token_ranker in ("twin", "dot"))
        return parts * self.transformer.hidden_size

    @property
    def score_form(self) -> str:
        """The meaning of a score (`first_stage/scorer.py`), in words."""
        if self.token_ranker == "dot":
            return "(1 + cosine of the texts' vectors) / 2"
        if self.encoding.colbert is not None and self.first_ranker is None:
            return "(1 + mean over the question's tokens of the largest cosine) / 2"
        return "sigmoid of the rankers' sum"

    @property
    def weighted_rankers(self) -> tuple[str, ...]:
        """The rankers whose weights score vectors, by the names of these weights in `scorer.safetensors`."""
        return ("first_ranker",) * (self.first_ranker is not None) + ("token_ranker",) * (self.token_ranker == "twin")
