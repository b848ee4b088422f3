"""Packed token ids of texts on a device, and the sequences that a cross-encoder makes from them.

Legend: N is the number of documents, each of which has a question; W of windows of all documents; T of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cerberank_models.encoding import EncodedPairs
from cerberank_models.network.layout import offsets_of


@dataclass(frozen=True, slots=True)
class Texts:
    """n texts in w windows."""

    token_ids: Tensor
    offsets: Tensor
    """`[w + 1]`: the tokens of window i are `offsets[i]:offsets[i + 1]`."""
    windows: Tensor
    """`[n + 1]`: the windows of text i are `windows[i]:windows[i + 1]`, at least one."""

    @classmethod
    def on(cls, device: torch.device, encoded: EncodedPairs, windows: NDArray[np.int64] | None = None) -> Texts:
        """Copy the arrays to `device`. Without `windows` each text has one window."""
        arrays = (encoded.token_ids, encoded.offsets, np.arange(len(encoded) + 1) if windows is None else windows)
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))


@dataclass(frozen=True, slots=True)
class JoinedTexts:
    """A sequence `[CLS] question [SEP] window [SEP]` for each window, and the places of both sides' tokens in it.

    The first token belongs to both sides, so that each side has the same tokens as its text encoded alone.
    """

    token_ids: Tensor
    type_ids: Tensor
    """0 for the question and its separators, 1 for the window (also 0 if the encoder has one type)."""
    offsets: Tensor
    """`[W + 1]`: the offsets of the sequences."""
    question_cells: Tensor
    """The places of the questions' tokens in all sequences."""
    question_targets: Tensor
    """For each of `question_cells`, its place in the packed tokens of the questions, with one copy per document."""
    question_offsets: Tensor
    """`[N + 1]`: the offsets of these copies."""
    document_cells: Tensor
    """The places of the documents' tokens in all sequences, in the order of `documents`."""


def joined(questions: Texts, documents: Texts, owners: Tensor, *, between: int, types: int) -> JoinedTexts:
    """Join each document's windows with the question whose index is in `owners[N]`.

    `between` is the number of separators between question and window, `types` the encoder's number of token types.
    """
    device = owners.device
    windows = documents.windows.diff()
    document = torch.repeat_interleave(torch.arange(len(owners), device=device), windows)  # [W]
    question = owners[document]
    question_lengths = questions.offsets.diff()[question]  # [W]
    lengths = question_lengths + (between - 1) + (documents.offsets.diff() - 1)
    offsets = offsets_of(lengths)
    # The place of every token of the joined sequences: its window, and its position within the sequence.
    window = torch.repeat_interleave(torch.arange(len(document), device=device), lengths)  # [T]
    place = torch.arange(len(window), device=device) - offsets[window]
    behind = place - (question_lengths + between - 1)[window]
    # Additional separators repeat the question's last token. The window's own first token is left out.
    from_question = questions.offsets[question][window] + place.minimum(question_lengths[window] - 1)
    from_document = documents.offsets[window] + 1 + behind.clamp(min=0)
    in_document = behind >= 0
    token_ids = torch.where(
        in_document,
        documents.token_ids[from_document.clamp(max=len(documents.token_ids) - 1)],
        questions.token_ids[from_question],
    )
    cells = (place < question_lengths[window]).nonzero()[:, 0]
    question_offsets = offsets_of(questions.offsets.diff()[owners])
    return JoinedTexts(
        token_ids=token_ids,
        type_ids=in_document.to(token_ids.dtype).clamp(max=types - 1),
        offsets=offsets,
        question_cells=cells,
        question_targets=question_offsets[document[window[cells]]] + place[cells],
        question_offsets=question_offsets,
        document_cells=(in_document | (place == 0)).nonzero()[:, 0],
    )
