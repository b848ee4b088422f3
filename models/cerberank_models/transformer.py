"""The shape of an encoder: its family, its special tokens around a pair, and its sizes. No torch, no files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=1)]

Family = Literal["albert", "bert", "electra", "roberta"]


@dataclass(frozen=True, slots=True)
class PairTemplate:
    """The special tokens around the segments of a pair, as a family was pre-trained with them."""

    first: str
    separator: str
    between: int = 1
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
