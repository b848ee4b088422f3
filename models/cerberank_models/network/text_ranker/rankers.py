"""The rankers on top of an encoder: TRMD's ranker 1 and ranker 2 (TwinBERT or ColBERT), and monoBERT's classifier.

Legend: N pairs of question and document, D width, P width of ColBERT's token vectors.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from cerberank_models.network.layout import PackedLayout
from cerberank_models.network.precision import LastLinear
from cerberank_models.network.text_ranker.side import Side


class ResidualRanker(nn.Module):
    """`x = max(q, d)` element by element, `v = W x + b + x`, score = Linear(dropout(v)) (TRMD section 3.1).

    Ranker 1 reads first tokens, and `v` is the student's CLS; TwinBERT reads means of tokens, without dropout.
    """

    def __init__(self, width: int, dropout: float) -> None:
        """`width` D; `dropout` acts in training only."""
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.output = LastLinear(width, 1)

    def forward(self, question: Tensor, document: Tensor) -> tuple[Tensor, Tensor]:
        """`[N, D]` or `[1, D]` and `[N, D]` to float32 scores `[N]` and `v [N, D]`."""
        larger = torch.maximum(question, document)
        vector: Tensor = self.dense(larger) + larger
        return self.output(self.dropout(vector)).float()[:, 0], vector


class LinearRanker(nn.Module):
    """monoBERT: a linear classifier of the first token of question and document together, the CLS that it teaches."""

    def __init__(self, width: int, dropout: float) -> None:
        """`width` D; `dropout` acts in training only."""
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.output = LastLinear(width, 1)

    def forward(self, question: Tensor, document: Tensor) -> tuple[Tensor, Tensor]:
        """The same vectors `[N, D]` twice, to float32 scores `[N]` and the vectors."""
        return self.output(self.dropout(document)).float()[:, 0], document


class TwinRanker(ResidualRanker):
    """TwinBERT's ranker: the masked mean of each side's tokens, then as ranker 1."""

    def score(self, question: Side, document: Side) -> tuple[Tensor, Tensor | None]:
        """Scores `[N]`, and the vector after the residual `[N, D]`."""
        return self.forward(question.mean(), document.mean())


class ColbertRanker(nn.Module):
    """ColBERT's ranker: token vectors of length 1, and late interaction."""

    def __init__(self, width: int, projection: int) -> None:
        """`width` D, `projection` P."""
        super().__init__()
        self.project = nn.Linear(width, projection, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """`[T, D]` to `[T, P]`."""
        return functional.normalize(self.project(tokens).float(), dim=-1)

    def score(self, question: Side, document: Side) -> tuple[Tensor, Tensor | None]:
        """Scores `[N]`; there is no residual."""
        return late_interaction(question, document), None


def late_interaction(question: Side, document: Side) -> Tensor:
    """The sum over a question's tokens of the largest similarity to a token of its document, float32 `[N]`.

    Padding takes part on neither side.
    """
    asked, said = PackedLayout.of(question.offsets), PackedLayout.of(document.offsets)
    with torch.autocast(question.tokens.device.type, enabled=False):
        similarity = asked.pad(question.tokens.float()) @ said.pad(document.tokens.float()).transpose(1, 2)
    best = similarity.masked_fill(~said.mask[:, None, :], float("-inf")).amax(dim=2)
    return best.masked_fill(~asked.mask, 0.0).sum(dim=1)
