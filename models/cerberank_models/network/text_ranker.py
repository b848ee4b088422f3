"""The network of a text ranker (TRMD section 2.1): one encoder, and one or two rankers on its output.

A bi-encoder reads question and document apart, a joint encoder reads them together. Legend: N is the number of pairs of
question and document, D the width of hidden states, P the width of ColBERT's token vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from cerberank_models.network.bodies.body_types import BODIES
from cerberank_models.network.layout import Layout, PackedLayout, offsets_of
from cerberank_models.network.precision import LastLinear
from cerberank_models.network.texts import Texts, joined
from cerberank_models.text_config import TextRankerConfig
from cerberank_models.transformer import PAIR_TEMPLATES


@dataclass(frozen=True, slots=True)
class Side:
    """The encoder's output for N texts, which are all questions or all documents.

    T is the number of tokens in all windows, including the special tokens at both ends of each window.
    """

    first: Tensor
    """`[N, D]`: the vector of the first token, as the mean over a text's windows."""
    tokens: Tensor
    """`[T, D]`, or `[T, P]` after ColBERT's projection: the input of ranker 2."""
    offsets: Tensor
    """`[N + 1]`: the tokens of text i are `offsets[i]:offsets[i + 1]`."""
    projected_from: Tensor | None = None
    """`[T, D]`: the encoder's output, if `tokens` are ColBERT's projections of it; else None."""
    counted: Tensor | None = None
    """`[T]`: True on the tokens that the mean covers; None if it covers all tokens."""

    @property
    def hidden(self) -> Tensor:
        """The encoder's output (TRMD eq. 5), `[T, D]`."""
        return self.tokens if self.projected_from is None else self.projected_from

    def mean(self) -> Tensor:
        """The mean over each text's tokens, `[N, D]`."""
        return _mean(PackedLayout.of(self.offsets), self.tokens, self.counted)

    def without(self, skipped: Tensor) -> Side:
        """This side without the tokens that `skipped[T]` marks."""
        rest = ~skipped
        offsets = offsets_of(rest)[self.offsets]
        hidden = None if self.projected_from is None else self.projected_from[rest]
        return Side(self.first, self.tokens[rest], offsets, projected_from=hidden)

    def select(self, rows: Tensor) -> Side:
        """The texts `rows`, in that order; rows may be repeated."""
        lengths = self.offsets.diff()[rows]
        offsets = offsets_of(lengths)
        shift = torch.repeat_interleave(self.offsets[rows] - offsets[:-1], lengths)
        chosen = torch.arange(len(shift), device=shift.device) + shift
        rest = (None if each is None else each[chosen] for each in (self.projected_from, self.counted))
        return Side(self.first[rows], self.tokens[chosen], offsets, *rest)


class ResidualRanker(nn.Module):
    """The score Linear(dropout(v)) with `v = W x + b + x` and `x = max(q, d)` by element (TRMD section 2.1).

    As ranker 1 it reads first tokens, and `v` is the student's CLS. TwinBERT's ranker reads means of tokens, without
    dropout.
    """

    def __init__(self, width: int, dropout: float) -> None:
        """`width` D; `dropout` applies in training only."""
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.output = LastLinear(width, 1)

    def forward(self, question: Tensor, document: Tensor) -> tuple[Tensor, Tensor]:
        """Compute float32 scores `[N]` and `v [N, D]` from questions `[N, D]` or `[1, D]`, and documents `[N, D]`."""
        larger = torch.maximum(question, document)
        vector: Tensor = self.dense(larger) + larger
        return self.output(self.dropout(vector)).float()[:, 0], vector


class LinearRanker(nn.Module):
    """monoBERT's linear classifier, on the first token of question and document read together, its CLS."""

    def __init__(self, width: int, dropout: float) -> None:
        """`width` D; `dropout` applies in training only."""
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.output = LastLinear(width, 1)

    def forward(self, question: Tensor, document: Tensor) -> tuple[Tensor, Tensor]:
        """Compute float32 scores `[N]`; returns the vectors too. Both arguments are the same vectors `[N, D]`."""
        return self.output(self.dropout(document)).float()[:, 0], document


class TwinRanker(ResidualRanker):
    """TwinBERT's ranker: the masked means of both sides' tokens, scored as in ranker 1."""

    def score(self, question: Side, document: Side) -> tuple[Tensor, Tensor | None]:
        """The scores `[N]`, and the vector after the residual, `[N, D]`."""
        return self.forward(question.mean(), document.mean())


class ColbertRanker(nn.Module):
    """ColBERT's ranker, which compares token vectors of length 1 by late interaction."""

    def __init__(self, width: int, projection: int) -> None:
        """Allocate the projection from `width`, D, to `projection`, P."""
        super().__init__()
        self.project = nn.Linear(width, projection, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Project `[T, D]` to vectors of length 1, `[T, P]`."""
        return functional.normalize(self.project(tokens).float(), dim=-1)

    def score(self, question: Side, document: Side) -> tuple[Tensor, Tensor | None]:
        """Scores `[N]`; there is no residual."""
        return late_interaction(question, document), None


class DotRanker(nn.Module):
    """The cosine of the means of both sides' tokens, without weights."""

    def score(self, question: Side, document: Side) -> tuple[Tensor, Tensor | None]:
        """Scores `[N]`; there is no residual."""
        return functional.cosine_similarity(question.mean().float(), document.mean().float()), None


def late_interaction(question: Side, document: Side) -> Tensor:
    """The sum over a question's tokens of the largest similarity to a token of its document, in float32, `[N]`.

    Padding is ignored on both sides.
    """
    left, right = PackedLayout.of(question.offsets), PackedLayout.of(document.offsets)
    with torch.autocast(question.tokens.device.type, enabled=False):
        similarity = left.pad(question.tokens.float()) @ right.pad(document.tokens.float()).transpose(1, 2)
    best = similarity.masked_fill(~right.mask[:, None, :], float("-inf")).amax(dim=2)
    return best.masked_fill(~left.mask, 0.0).sum(dim=1)


@dataclass(frozen=True, slots=True)
class Reading:
    """A text ranker's output for N pairs: their scores, and the tensors that distillation compares."""

    scores: Tensor
    """`[N]`, float32: the sum of both rankers' scores."""
    cls: Tensor | None
    """`[N, D]`: ranker 1's vector after the residual, or monoBERT's first token; None without ranker 1."""
    residual: Tensor | None
    """`[N, D]`: TwinBERT's vector after the residual; None for other rankers."""
    question: Side
    """The question of each of the N documents."""
    document: Side


class TextVectors(nn.Module):
    """The network of a first stage: it computes the vectors of texts, each alone, for the rankers of a bi-encoder."""

    token_ranker: TwinRanker | ColbertRanker | DotRanker | None

    def __init__(self, config: TextRankerConfig, *, dropout: float = 0.0) -> None:
        """Allocate the network with PyTorch's initial weights; `dropout` applies in training only."""
        super().__init__()
        transformer = config.transformer
        self.config = config
        self.encoder = body = BODIES[transformer.family](transformer, transformer.layers, dropout)
        # The same names as in `RankingNetwork`, so that weights are imported in the same way.
        self.embeddings = body.embeddings
        self.body = body.layers
        self.norm = body.output_norm()
        colbert = config.token_ranker == "colbert"
        self.token_ranker = ColbertRanker(transformer.hidden_size, config.projection) if colbert else None

    def read(self, token_ids: Tensor, type_ids: Tensor, layout: Layout) -> tuple[Tensor, Tensor | None]:
        """The fixed-width part of each text's vector, `[N, W]`, and ColBERT's token vectors `[.., P]` or None."""
        hidden = self.encode(token_ids, type_ids, layout)
        parts = [layout.first(hidden)] if self.config.first_ranker else []
        if self.config.token_ranker == "twin":
            parts.append(_mean(layout, hidden, self._counted(layout)))
        if self.config.token_ranker == "dot":
            parts.append(functional.normalize(layout.mean(hidden).float(), dim=-1).to(hidden.dtype))
        fixed = torch.cat(parts, dim=-1) if parts else layout.first(hidden)[:, :0]
        return fixed, self.token_ranker(hidden) if isinstance(self.token_ranker, ColbertRanker) else None

    def encode(self, token_ids: Tensor, type_ids: Tensor, layout: Layout) -> Tensor:
        """The last layer's hidden states, after the output norm."""
        hidden = self.encoder.embed(token_ids, type_ids, layout)
        normal: Tensor = self.norm(self.encoder.run(hidden, layout, 0, self.config.transformer.layers))
        return normal

    def _counted(self, layout: Layout) -> Tensor | None:
        """True on the tokens of TwinBERT's mean; None for all tokens."""
        return layout.inner() if self.config.mean == "text" else None


class TextRanker(TextVectors):
    """Scores documents against questions."""

    def __init__(self, config: TextRankerConfig, *, dropout: float = 0.0) -> None:
        """Allocate the network with PyTorch's initial weights; `dropout` applies in training only."""
        super().__init__(config, dropout=dropout)
        width = config.transformer.hidden_size
        self.first_ranker: ResidualRanker | LinearRanker | None = None
        if config.first_ranker is not None:
            ranker = LinearRanker if config.first_ranker == "linear" else ResidualRanker
            self.first_ranker = ranker(width, dropout)
        if config.token_ranker == "twin":
            self.token_ranker = TwinRanker(width, 0.0)
        if config.token_ranker == "dot":
            self.token_ranker = DotRanker()

    def forward(self, questions: Texts, documents: Texts, owners: Tensor) -> Reading:
        """Score each document for the question whose index is in `owners[N]`. A bi-encoder reads a question once."""
        question, document = (
            self._together(questions, documents, owners)
            if self.config.joint
            else (self.alone(questions).select(owners), self.alone(documents, document=True))
        )
        return self.score(question, document)

    def alone(self, texts: Texts, *, document: bool = False) -> Side:
        """Encode each text alone. A bi-encoder can compute this for documents before the question arrives.

        ColBERT skips the punctuation of a `document`, and the tokens of a question do not attend to those that fill it.
        """
        layout, colbert = PackedLayout.of(texts.offsets), self.config.encoding.colbert
        if colbert is not None and colbert.unattended is not None and not document:
            layout = replace(layout, keys=layout.pad(texts.token_ids != colbert.unattended))
        hidden = self.encode(texts.token_ids, torch.zeros_like(texts.token_ids), layout)
        side = self._side(_first(hidden, layout, texts), hidden, texts.offsets[texts.windows], layout)
        if colbert is None or not document:
            return side
        return side.without(torch.isin(texts.token_ids, texts.token_ids.new_tensor(colbert.skipped)))

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
        """Encode both sides jointly. If a question is read with several windows, its vectors are means over them."""
        transformer = self.config.transformer
        between = PAIR_TEMPLATES[transformer.family].between
        both = joined(questions, documents, owners, between=between, types=transformer.type_vocab_size)
        layout = PackedLayout.of(both.offsets)
        hidden = self.encode(both.token_ids, both.type_ids, layout)
        first = _first(hidden, layout, documents)
        copies = hidden[both.question_cells]
        sums = copies.new_zeros((int(both.question_offsets[-1]), copies.shape[1]))
        times = torch.repeat_interleave(documents.windows.diff(), both.question_offsets.diff())
        question = sums.index_add(0, both.question_targets, copies) / times[:, None]
        windows, ends = PackedLayout.of(documents.offsets), documents.offsets[documents.windows]
        return (
            self._side(first, question, both.question_offsets, PackedLayout.of(both.question_offsets)),
            self._side(first, hidden[both.document_cells], ends, windows),
        )

    def _side(self, first: Tensor, hidden: Tensor, offsets: Tensor, windows: Layout) -> Side:
        """The side of texts with the encoder's output `hidden`; `windows` is the layout of all windows."""
        if isinstance(self.token_ranker, ColbertRanker):
            return Side(first, self.token_ranker(hidden), offsets, projected_from=hidden)
        return Side(first, hidden, offsets, counted=self._counted(windows))


def _mean(layout: Layout, hidden: Tensor, counted: Tensor | None) -> Tensor:
    """The mean over each text's tokens, or its counted tokens, `[N, D]`; zeros for a text without counted tokens."""
    if counted is None:
        return layout.mean(hidden)
    weight = counted[..., None].float()
    share = layout.mean(weight).clamp(min=2.0**-20)  # the share is 0 for an empty text
    return (layout.mean(hidden.float() * weight) / share).to(hidden.dtype)


def _first(hidden: Tensor, layout: PackedLayout, texts: Texts) -> Tensor:
    """The first token's vector, as the mean over each text's windows, `[N, D]`."""
    return PackedLayout.of(texts.windows).mean(layout.first(hidden))
