"""The network of a text ranker: one encoder, read alone or together, and one or two rankers (TRMD section 3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cerberank_models.network.bodies.registry import BODIES
from cerberank_models.network.layout import PackedLayout
from cerberank_models.network.text_ranker.rankers import ColbertRanker, LinearRanker, ResidualRanker, TwinRanker
from cerberank_models.network.text_ranker.side import Side
from cerberank_models.network.text_ranker.texts import Texts, joined
from cerberank_models.texts.config import TextRankerConfig
from cerberank_models.transformer import PAIR_TEMPLATES


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text ranker makes of N pairs: their scores, and the tensors that distillation compares."""

    scores: Tensor
    """`[N]`, float32: the sum of both rankers' scores."""
    cls: Tensor | None
    """`[N, D]`: ranker 1's vector after the residual, or the first token that monoBERT classifies; None without."""
    residual: Tensor | None
    """`[N, D]`: TwinBERT's vector after the residual; None without that ranker."""
    question: Side
    """N rows: each document's question."""
    document: Side


class TextRanker(nn.Module):
    """Scores documents against questions."""

    def __init__(self, config: TextRankerConfig, *, dropout: float = 0.0) -> None:
        """Allocate the network with PyTorch's initial weights; `dropout` acts in training only."""
        super().__init__()
        transformer, width = config.transformer, config.transformer.hidden_size
        self.config = config
        self.encoder = body = BODIES[transformer.family](transformer, transformer.layers, dropout)
        # Named as in a Ranker, so that weights are imported in the same way.
        self.embeddings, self.body, self.norm = body.embeddings, body.layers, body.output_norm()
        self.first_ranker: ResidualRanker | LinearRanker | None = None
        if config.first_ranker is not None:
            ranker = LinearRanker if config.first_ranker == "linear" else ResidualRanker
            self.first_ranker = ranker(width, dropout)
        self.token_ranker: TwinRanker | ColbertRanker | None = None
        if config.token_ranker is not None:
            twin = config.token_ranker == "twin"
            self.token_ranker = TwinRanker(width, 0.0) if twin else ColbertRanker(width, config.projection)

    def forward(self, questions: Texts, documents: Texts, owners: Tensor) -> Reading:
        """Score each document against the question `owners[N]`; a bi-encoder reads every question once."""
        question, document = (
            self._together(questions, documents, owners)
            if self.config.joint
            else (self.alone(questions).select(owners), self.alone(documents))
        )
        return self.score(question, document)

    def alone(self, texts: Texts) -> Side:
        """Each text without the other side; what a bi-encoder can compute before the question arrives."""
        layout = PackedLayout.of(texts.offsets)
        hidden = self._encode(texts.token_ids, torch.zeros_like(texts.token_ids), layout)
        return Side(_first(hidden, layout, texts), self._read(hidden), texts.offsets[texts.windows])

    def score(self, question: Side, document: Side) -> Reading:
        """Score N questions with N documents, row by row."""
        scores, cls, residual = [], None, None
        if self.first_ranker is not None:
            score, cls = self.first_ranker(question.first, document.first)
            scores.append(score)
        if self.token_ranker is not None:
            score, residual = self.token_ranker.score(question, document)
            scores.append(score)
        return Reading(torch.stack(scores).sum(dim=0), cls, residual, question, document)

    def _together(self, questions: Texts, documents: Texts, owners: Tensor) -> tuple[Side, Side]:
        """Both sides of a joint encoding; a question that several windows are read with is their mean."""
        transformer = self.config.transformer
        between = PAIR_TEMPLATES[transformer.family].between
        both = joined(questions, documents, owners, between=between, types=transformer.type_vocab_size)
        layout = PackedLayout.of(both.offsets)
        hidden = self._encode(both.token_ids, both.type_ids, layout)
        first = _first(hidden, layout, documents)
        asked = hidden[both.question_cells]
        sums = asked.new_zeros((int(both.question_offsets[-1]), asked.shape[1]))
        times = torch.repeat_interleave(documents.windows.diff(), both.question_offsets.diff())
        asked = sums.index_add(0, both.question_targets, asked) / times[:, None]
        said = hidden[both.document_cells]
        return (
            Side(first, self._read(asked), both.question_offsets),
            Side(first, self._read(said), documents.offsets[documents.windows]),
        )

    def _encode(self, token_ids: Tensor, type_ids: Tensor, layout: PackedLayout) -> Tensor:
        hidden = self.encoder.embed(token_ids, type_ids, layout)
        normal: Tensor = self.norm(self.encoder.run(hidden, layout, 0, self.config.transformer.layers))
        return normal

    def _read(self, hidden: Tensor) -> Tensor:
        """The token vectors that ranker 2 reads."""
        return self.token_ranker(hidden) if isinstance(self.token_ranker, ColbertRanker) else hidden


def _first(hidden: Tensor, layout: PackedLayout, texts: Texts) -> Tensor:
    """The first token's vector, `[N, D]`, the mean over each text's windows."""
    return PackedLayout.of(texts.windows).mean(layout.first(hidden))
