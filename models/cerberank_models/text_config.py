"""The shape of a text ranker, as stated by its folder's `config.json`, or `first_stage` in that of a checkpoint.

The models are frozen, reject unknown keys, and are read by the encoders of a first stage and by the training of
bi-encoders. This module holds data only: it imports no torch and opens no files.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cerberank_models.transformer import PAIR_TEMPLATES, Count, Frozen, TransformerConfig

QuestionPart = Literal["start", "end"]


class ColbertTokens(Frozen):
    """The ids of the tokens that ColBERT adds to texts or ignores in them."""

    question_mark: int
    """The token after the first token of a question."""
    document_mark: int
    """The token after the first token of a document, in every window."""
    fill: int | None = None
    """The token that fills up a question after its separator and takes part in late interaction; None if questions are
    not filled up."""
    filled: Annotated[Count | None, Field(exclude_if=lambda filled: filled is None)] = None
    """The number of tokens to which a question is filled up. None, and omitted from `config.json`, for
    `question_length`."""
    attends: Annotated[bool, Field(exclude_if=lambda attends: not attends)] = False
    """True if tokens attend to the tokens that fill up a question."""
    skipped: tuple[int, ...] = ()
    """Tokens of documents that take no part in late interaction: punctuation."""

    @property
    def unattended(self) -> int | None:
        """The token of questions that no token attends to; None if there is none."""
        return None if self.attends else self.fill


class TextEncodingConfig(Frozen):
    """The rules by which questions and documents are made into token ids, each text alone. Lengths do not count
    special tokens.
    """

    question_length: Count = 64
    """The most tokens of a question."""
    question_part: Annotated[QuestionPart, Field(exclude_if=lambda part: part == "start")] = "start"
    """The part that is read of a longer question (`question_tokens.py`). ColBERT's libraries and TRMD's code read the
    start. Omitted from `config.json` at its default."""
    document_length: Count = 800
    """The most tokens of a document, or of a candidate that a first stage reads (TRMD section 3.1.3)."""
    window: Count = 384
    """The most tokens of a document that are encoded at once; a longer document is read in several windows."""
    colbert: Annotated[ColbertTokens | None, Field(exclude_if=lambda colbert: colbert is None)] = None
    """The tokens of a ColBERT. None, and omitted from `config.json`, for texts that have only the family's special
    tokens around them."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.colbert is not None and (self.colbert.filled or 0) > self.question_length:
            raise ValueError(f"filled must be at most question_length, {self.question_length}")
        return self

    @property
    def question_limit(self) -> int:
        """The most tokens of a question."""
        return self.question_length

    @property
    def special(self) -> int:
        """The number of special tokens of a text that is read alone."""
        return 2 if self.colbert is None else 3


class TextRankerConfig(Frozen):
    """The shape of a text ranker (TRMD section 2.1).

    If `joint` is False, it is a bi-encoder: it reads question and document apart, so that it can be a first stage. The
    vector of a text is the concatenation of the inputs of its rankers: for `first_ranker` the first token's vector
    (CLS), and for `token_ranker` either the mean of all tokens' vectors (`twin`; `dot` scales it to length 1) or every
    token's projected vector of length 1 (`colbert`).

    If `joint` is True, it is a cross-encoder: it reads question and document together.

    monoBERT is joint and has a linear `first_ranker`. TwinBERT and ColBERT are bi-encoders that have only a
    `token_ranker`. TRMD's students have a residual `first_ranker` and a `token_ranker`.
    """

    model_type: Literal["cerberank-text-ranker"] = "cerberank-text-ranker"
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$")] = "text-ranker"
    encoder: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = "0" * 64
    """A hash of the tokenizer, weights and lengths of a first stage. First stages with the same hash give a text the
    same vectors. Zeros in a text ranker's own folder, because a first stage may cut texts at other lengths."""
    transformer: TransformerConfig
    joint: bool = False
    first_ranker: Literal["linear", "residual"] | None = None
    """Ranker 1, which reads first tokens: monoBERT's linear classifier, or TRMD's classifier with a residual."""
    token_ranker: Literal["twin", "colbert", "dot"] | None = None
    """Ranker 2, which reads all tokens. `dot` is the cosine of the means and has no weights, as in
    sentence-transformers' bi-encoders."""
    mean: Annotated[Literal["all", "text"], Field(exclude_if=lambda mean: mean == "all")] = "all"
    """The tokens that TwinBERT's mean covers: all tokens, or the text's tokens without the special tokens, as in TRMD's
    released code. Omitted from `config.json` at its default, so that earlier releases can read it."""
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
        """The length of the longest sequence that a joint encoder of the same texts reads, including special tokens."""
        special = 2 + PAIR_TEMPLATES[self.transformer.family].between
        return self.encoding.question_length + self.encoding.window + special

    @property
    def room(self) -> int:
        """The number of the encoder's usable positions."""
        return self.transformer.max_positions - self.transformer.position_offset

    @property
    def fixed_width(self) -> int:
        """The width of a vector without ColBERT's token vectors, whose number depends on the text's length."""
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
        """The rankers that have weights of their own to score vectors, as named in `scorer.safetensors`."""
        return ("first_ranker",) * (self.first_ranker is not None) + ("token_ranker",) * (self.token_ranker == "twin")
