"""The shape of an encoder: its family, its special tokens around a pair, and its sizes. No torch, no files."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

Count = Annotated[int, Field(ge=1)]

Family = Literal["albert", "bert", "distilbert", "electra", "modernbert", "qwen2", "qwen3", "roberta", "xlm-roberta"]
DECODERS: tuple[Family, ...] = ("qwen2", "qwen3")
"""The families whose tokens see what stands before them alone; the others are encoders."""


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class PairTemplate:
    """The special tokens around the segments of a pair, as a model was pre-trained with them."""

    first: str
    separator: str
    between: Count = 1
    """Separators between two segments."""


PAIR_TEMPLATES: Mapping[Family, PairTemplate] = MappingProxyType(
    {
        "albert": PairTemplate("[CLS]", "[SEP]"),
        "bert": PairTemplate("[CLS]", "[SEP]"),
        "distilbert": PairTemplate("[CLS]", "[SEP]"),
        "electra": PairTemplate("[CLS]", "[SEP]"),
        "modernbert": PairTemplate("[CLS]", "[SEP]"),
        "roberta": PairTemplate("<s>", "</s>", between=2),
        "xlm-roberta": PairTemplate("<s>", "</s>", between=2),
    }
)


class Frozen(BaseModel):
    """Immutable, and strict about keys: a misspelt setting is an error, never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PromptTemplate(Frozen):
    """The text around a question and a candidate that a decoder was trained with, and the tokens that it answers with.

    The pieces are tokenised each alone and then joined in the order of the fields, because the model's own code does so
    or because no token of its tokenizer lies across their borders.
    """

    head: tuple[str, ...] = ()
    instruction: tuple[str, ...] = ()
    """Pieces that say what is looked for; one holds `{instruction}`. Left out where there is no instruction."""
    lead: tuple[str, ...] = ()
    """The text between the instruction and the question."""
    question: str = "{question}"
    join: tuple[str, ...] = ()
    candidate: str = "{candidate}"
    """Ends in the candidate, which is cut at its end where a pair is too long."""
    tail: tuple[str, ...]
    default_instruction: str | None = None
    """The instruction for a question that comes without one."""
    yes: str
    """The token whose logit at the end of a pair is its score's log-odds."""
    no: str | None = None
    """The token whose logit is subtracted from it, if there is one."""
    divisor: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 1.0
    """The number that the log-odds are divided by."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.question.count("{question}") != 1 or not self.candidate.endswith("{candidate}"):
            raise ValueError("question must hold {question} once, and candidate end in {candidate}")
        if self.instruction and "".join(self.instruction).count("{instruction}") != 1:
            raise ValueError("instruction must hold {instruction} once")
        if self.default_instruction is not None and not self.instruction:
            raise ValueError("a default_instruction needs the pieces of instruction")
        return self


class DecoderConfig(Frozen):
    """The fields of a decoder beside its sizes, as Qwen2 and Qwen3 define it.

    RMSNorm in front of attention and of a gated feed-forward (SwiGLU), rotary positions, attention to what stands
    before, and keys and values that several heads share.
    """

    head_size: Count
    key_value_heads: Count
    theta: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 1_000_000.0
    """Base of the rotary frequencies."""
    attention_bias: bool = False
    """True if queries, keys and values have a bias (Qwen2)."""
    output_bias: bool = False
    """True if attention's output projection has a bias."""
    query_key_norm: bool = True
    """True if each head's queries and keys are normalised (Qwen3)."""


class PreNormConfig(Frozen):
    """The fields of a pre-norm encoder beside its sizes, as ModernBERT (Warner et al., 2024) defines it.

    Rotary positions, gated feed-forwards, and local attention in most layers.
    """

    global_every: Count = 3
    """Layers 0, `global_every`, 2 `global_every`, ... attend to the whole pair, the others to what is near."""
    window: Count = 64
    """Local attention reads tokens that are at most so many positions away."""
    global_theta: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 160_000.0
    """Base of the rotary frequencies in layers that attend to the whole pair."""
    local_theta: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 10_000.0
    """The same in the other layers."""
    attention_bias: bool = False
    feed_forward_bias: bool = False
    norm_bias: bool = False

    def window_of(self, depth: int) -> int | None:
        """The reach of attention in the layer at `depth`, counted from 0; None for the whole pair."""
        return self.window if depth % self.global_every else None

    def theta_of(self, depth: int) -> float:
        """The base of the rotary frequencies of the layer at `depth`, counted from 0."""
        return self.local_theta if depth % self.global_every else self.global_theta


class TransformerConfig(Frozen):
    """An encoder's family and sizes. Its layers are post-norm, or pre-norm where `pre_norm` describes them."""

    family: Family
    vocab_size: Count
    hidden_size: Count
    layers: Annotated[int, Field(ge=0)]
    """0 in a checkpoint whose first stage ranks alone, which reads no pair."""
    attention_heads: Count
    intermediate_size: Count
    max_positions: Count
    """Rows of the position table, RoBERTa's unused first rows included; for rotary positions the longest input."""
    position_offset: Annotated[int, Field(ge=0)] = 0
    """Position id of the first token: 0, or `pad_token_id + 1` for RoBERTa and XLM-RoBERTa."""
    type_vocab_size: Count = 2
    """1 for encoders without token types too."""
    embedding_size: Count
    """Equal to `hidden_size` except for ELECTRA-small and ALBERT, which project their embeddings up."""
    layer_norm_epsilon: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 1e-12
    pre_norm: Annotated[PreNormConfig | None, Field(exclude_if=lambda given: given is None)] = None
    """ModernBERT's, and no other family's; left out of `config.json` elsewhere, which earlier releases then read."""
    decoder: Annotated[DecoderConfig | None, Field(exclude_if=lambda given: given is None)] = None
    """Qwen2's and Qwen3's, and left out elsewhere."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.decoder is not None) != (self.family in DECODERS):
            raise ValueError(f"decoder is for {' and '.join(DECODERS)}, which need it; the family is {self.family}")
        if self.decoder is not None and self.attention_heads % self.decoder.key_value_heads:
            raise ValueError("attention_heads must be a multiple of key_value_heads")
        if self.decoder is None and self.hidden_size % self.attention_heads:
            raise ValueError("hidden_size must be a multiple of attention_heads")
        if (self.pre_norm is not None) != (self.family == "modernbert"):
            raise ValueError(f"pre_norm is for modernbert, which needs it; the family is {self.family}")
        if (self.pre_norm or self.decoder) and self.head_size % 2:
            raise ValueError("rotary positions need attention heads of an even size: hidden_size / attention_heads")
        return self

    @property
    def shared_layers(self) -> bool:
        """True if all layers have the same weights, which are then stored once; `layers` is the number of runs."""
        return self.family == "albert"

    @property
    def drops_pooled(self) -> bool:
        """True if the family's classifier has dropout before its first layer, not only before its last."""
        return self.family in ("electra", "roberta", "xlm-roberta")

    @property
    def head_size(self) -> int:
        """The width of an attention head."""
        return self.hidden_size // self.attention_heads if self.decoder is None else self.decoder.head_size

    @property
    def token_types(self) -> bool:
        """True if there is a table of token types."""
        return self.family not in ("distilbert", "modernbert", *DECODERS)

    @property
    def feed_forward_maps(self) -> int:
        """Linear maps of a feed-forward: two, and one more that gates the inner channels."""
        return 2 if self.pre_norm is None and self.decoder is None else 3


class OpaqueTransformer(Frozen):
    """A network that is known by its graph alone, from tokens to logits in one stage.

    It has no layers that could be cut, trained or run by torch: a graph is all that there is of it.
    """

    family: Literal["opaque"]
    model_type: str
    """The name of the network in transformers, such as `deberta-v2`; shown, never acted on."""
    vocab_size: Count
    layers: Count = 1
    """The number of layers in its configuration, 1 where it has none: an estimate of its cost."""
    max_positions: Count
    """Most tokens of a pair that the graph reads."""
    type_vocab_size: Annotated[int, Field(ge=1, le=2)] = 1
    """2 where the model's own tokenizer gives the candidate a token type of its own."""

    @property
    def position_offset(self) -> int:
        """0: `max_positions` counts tokens."""
        return 0
