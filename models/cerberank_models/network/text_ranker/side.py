"""What an encoder gives for the texts of one side, questions or documents."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cerberank_models.network.layout import PackedLayout


@dataclass(frozen=True, slots=True)
class Side:
    """N texts, T tokens of all windows, special tokens included; width D, or P after ColBERT's projection."""

    first: Tensor
    """`[N, D]`: the vector of the first token, the mean over a text's windows."""
    tokens: Tensor
    """`[T, D]` or `[T, P]`: what ranker 2 reads."""
    offsets: Tensor
    """`[N + 1]`: text i owns the tokens `offsets[i]:offsets[i + 1]`."""

    def mean(self) -> Tensor:
        """The mean over each text's tokens, `[N, D]`."""
        return PackedLayout.of(self.offsets).mean(self.tokens)

    def select(self, rows: Tensor) -> Side:
        """The texts `rows`, in that order, repeated where a row is."""
        lengths = self.offsets.diff()[rows]
        offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        shift = torch.repeat_interleave(self.offsets[rows] - offsets[:-1], lengths)
        return Side(self.first[rows], self.tokens[torch.arange(len(shift), device=shift.device) + shift], offsets)
