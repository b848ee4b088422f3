"""The shape of an encoder: its family, its special tokens around a pair, and its sizes. No torch, no files."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

Count = Annotated[int, Field(ge=1)]

Family = Literal["albert", "bert", "electra", "roberta"]


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
        "electra": PairTemplate("[CLS]", "[SEP]"),
        "roberta": PairTemplate("<s>", "</s>", between=2),
    }
)


class Frozen(BaseModel):
    """Immutable, and strict about keys: a misspelt setting is an error, never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TransformerConfig(Frozen):
    """A post-LN encoder as ALBERT, BERT, ELECTRA and RoBERTa define it."""

    family: Family
    vocab_size: Count
    hidden_size: Count
    layers: Count
    attention_heads: Count
    intermediate_size: Count
    max_positions: Count
    """Rows of the position table, RoBERTa's unused first rows included."""
    position_offset: Annotated[int, Field(ge=0)] = 0
    """Position id of the first token: 0, or `pad_token_id + 1` for RoBERTa."""
    type_vocab_size: Count = 2
    embedding_size: Count
    """Equal to `hidden_size` except for ELECTRA-small and ALBERT, which project their embeddings up."""
    layer_norm_epsilon: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] = 1e-12

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.hidden_size % self.attention_heads:
            raise ValueError("hidden_size must be a multiple of attention_heads")
        return self

    @property
    def shared_layers(self) -> bool:
        """Whether all layers have the same weights, which are then stored once; `layers` is how often they are run."""
        return self.family == "albert"


class OpaqueTransformer(Frozen):
    """A network of which nothing is known but its graph, which takes tokens to logits in one stage.

    It has no layers that could be cut, trained or run by torch: a graph is all that there is of it.
    """

    family: Literal["opaque"]
    model_type: str
    """What transformers calls the network, such as `deberta-v2`; told, never acted on."""
    vocab_size: Count
    layers: Count = 1
    """How deep its configuration says that it is, 1 where it does not say: an estimate of its cost."""
    max_positions: Count
    """Most tokens of a pair that the graph reads."""
    type_vocab_size: Annotated[int, Field(ge=1, le=2)] = 1
    """2 where the model's own tokenizer gives the candidate a token type of its own."""

    @property
    def position_offset(self) -> int:
        """0: `max_positions` counts tokens."""
        return 0
