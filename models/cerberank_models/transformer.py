"""The shape of an encoder or decoder: its family, the tokens or text around a pair, and its sizes.

This module holds data only: it imports no torch and opens no files.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

Count = Annotated[int, Field(ge=1)]

Family = Literal["albert", "bert", "distilbert", "electra", "modernbert", "qwen2", "qwen3", "roberta", "xlm-roberta"]
DECODERS: tuple[Family, ...] = ("qwen2", "qwen3")
"""The families whose tokens attend only to earlier tokens; all other families are encoders."""


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class PairTemplate:
    """The special tokens around the segments of a pair, as a model was pre-trained with them."""

    first: str
    separator: str
    between: Count = 1
    """The number of separators between two segments."""


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
    """An immutable model that rejects unknown keys, so that a misspelt setting is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PromptTemplate(Frozen):
    """The text around question and candidate that a decoder was trained with, and the tokens that state its answer.

    Each piece is tokenised alone, and the tokens are joined in the order of the fields. The model's own code does the
    same, or its tokenizer has no token that crosses the borders between pieces.
    """

    head: tuple[str, ...] = ()
    instruction: tuple[str, ...] = ()
    """Pieces that state the task; one holds `{instruction}`. Omitted from the prompt if there is no instruction."""
    lead: tuple[str, ...] = ()
    """The text between the instruction and the question."""
    question: str = "{question}"
    join: tuple[str, ...] = ()
    candidate: str = "{candidate}"
    """A piece that ends in the candidate, whose end is cut if the pair is too long."""
    tail: tuple[str, ...]
    default_instruction: str | None = None
    """The instruction for a request that gives none."""
    yes: str
    """The token whose logit at the end of a pair is the log-odds of the score."""
    no: str | None = None
    """The token whose logit is subtracted from the logit of `yes`; None to subtract nothing."""
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
    """The fields of a decoder such as Qwen2 and Qwen3, beside its sizes.

    Such a decoder has RMSNorm before attention and before a gated feed-forward (SwiGLU), rotary positions, causal
    attention, and keys and values that several heads share.
    """

    head_size: Count
    key_value_heads: Count
    theta: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 1_000_000.0
    """Base of the rotary frequencies."""
    attention_bias: bool = False
    """True if the projections to queries, keys and values have a bias (Qwen2)."""
    output_bias: bool = False
    """True if attention's output projection has a bias."""
    query_key_norm: bool = True
    """True if each head's queries and keys are normalised (Qwen3)."""


class PreNormConfig(Frozen):
    """The fields of a pre-norm encoder such as ModernBERT (Warner et al., 2024), beside its sizes.

    Such an encoder has rotary positions, gated feed-forwards, and local attention in most layers.
    """

    global_every: Count = 3
    """Layers 0, `global_every`, 2 `global_every`, ... attend to the whole pair; the others have local attention."""
    window: Count = 64
    """The largest distance, in positions, of a token that local attention reads."""
    global_theta: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 160_000.0
    """Base of the rotary frequencies in layers that attend to the whole pair."""
    local_theta: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 10_000.0
    """Base of the rotary frequencies in layers with local attention."""
    attention_bias: bool = False
    feed_forward_bias: bool = False
    norm_bias: bool = False

    def window_of(self, depth: int) -> int | None:
        """The window of attention in the layer at `depth`, counted from 0; None if it attends to the whole pair."""
        return self.window if depth % self.global_every else None

    def theta_of(self, depth: int) -> float:
        """The base of the rotary frequencies of the layer at `depth`, counted from 0."""
        return self.local_theta if depth % self.global_every else self.global_theta


class TransformerConfig(Frozen):
    """Family and sizes of an encoder or a decoder. Layers are post-norm unless `pre_norm` or `decoder` is set."""

    family: Family
    vocab_size: Count
    hidden_size: Count
    layers: Annotated[int, Field(ge=0)]
    """The number of layers; 0 in a checkpoint whose first stage is the only stage, so that no pair is read."""
    attention_heads: Count
    intermediate_size: Count
    max_positions: Count
    """Rows of the position table, including RoBERTa's unused first rows; with rotary positions, the longest input."""
    position_offset: Annotated[int, Field(ge=0)] = 0
    """Position id of the first token: 0, or `pad_token_id + 1` for RoBERTa and XLM-RoBERTa."""
    type_vocab_size: Count = 2
    """The number of token types; 1 also for encoders without token types."""
    embedding_size: Count
    """Equal to `hidden_size` except for ELECTRA-small and ALBERT, which project their embeddings up."""
    layer_norm_epsilon: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 1e-12
    pre_norm: Annotated[PreNormConfig | None, Field(exclude_if=lambda given: given is None)] = None
    """Set for ModernBERT only. Omitted from `config.json` for other families, so that earlier releases can read it."""
    decoder: Annotated[DecoderConfig | None, Field(exclude_if=lambda given: given is None)] = None
    """Set for Qwen2 and Qwen3 only. Omitted from `config.json` for other families."""

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
        """True if all layers share one set of weights, which is stored once and run `layers` times."""
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
        """True if the family has a table of token types."""
        return self.family not in ("distilbert", "modernbert", *DECODERS)

    @property
    def feed_forward_maps(self) -> int:
        """The number of linear maps of a feed-forward: two, or three if one gates the inner channels."""
        return 2 if self.pre_norm is None and self.decoder is None else 3


class OpaqueTransformer(Frozen):
    """A network that exists only as an ONNX graph, which computes logits from tokens in one stage.

    Its layers are not accessible, so they cannot be cut, trained or run by torch.
    """

    family: Literal["opaque"]
    model_type: str
    """The name of the network in transformers, such as `deberta-v2`, for display only."""
    vocab_size: Count
    layers: Count = 1
    """The number of layers in the model's configuration, or 1 if it states none; used to estimate the cost."""
    max_positions: Count
    """The most tokens of a pair that the graph reads."""
    type_vocab_size: Annotated[int, Field(ge=1, le=2)] = 1
    """2 if the model's own tokenizer gives the candidate a token type of its own."""

    @property
    def position_offset(self) -> int:
        """Always 0, because `max_positions` counts tokens."""
        return 0
