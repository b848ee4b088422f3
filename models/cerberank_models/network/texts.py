"""Packed token ids of texts on a device, and the sequences that a cross-encoder makes of them.

Legend: N documents (each with the question that it is read with), W windows of all documents, T tokens, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cerberank_models.encoding import EncodedPairs


@dataclass(frozen=True, slots=True)
class Texts:
    """n texts in w windows."""

    token_ids: Tensor
    offsets: Tensor
    """`[w + 1]`: window i owns the tokens `offsets[i]:offsets[i + 1]`."""
    windows: Tensor
    """`[n + 1]`: text i owns the windows `windows[i]:windows[i + 1]`, at least one."""

    @classmethod
    def on(cls, device: torch.device, encoded: EncodedPairs, windows: NDArray[np.int64] | None = None) -> Texts:
        """Copy the arrays to `device`; without `windows` each text is one."""
        arrays = (encoded.token_ids, encoded.offsets, np.arange(len(encoded) + 1) if windows is None else windows)
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))


@dataclass(frozen=True, slots=True)
class JoinedTexts:
    """A sequence `[CLS] question [SEP] window [SEP]` for each window of each document, and what belongs to which side.

    The first token belongs to both sides, so that each side's tokens lie as those of its text encoded alone.
    """

    token_ids: Tensor
    type_ids: Tensor
    """0 for the question and its separators, 1 for the window (0 where the encoder has one type)."""
    offsets: Tensor
    """`[W + 1]`."""
    question_cells: Tensor
    """The places of the question's tokens, in every window."""
    question_targets: Tensor
    """For each of `question_cells` its place in the question's packed tokens, one copy a document."""
    question_offsets: Tensor
    """`[N + 1]`."""
    document_cells: Tensor
    """The places of the documents' tokens; they are packed as in `documents`."""


def joined(questions: Texts, documents: Texts, owners: Tensor, *, between: int, types: int) -> JoinedTexts:
    """Join each document's windows with the question `owners[N]`.

    `between` separators stand between question and window; `types` is the encoder's number of token types.
    """
    device = owners.device
    windows = documents.windows.diff()
    document = torch.repeat_interleave(torch.arange(len(owners), device=device), windows)  # [W]
    question = owners[document]
    asked, said = questions.offsets.diff()[question], documents.offsets.diff()
    lengths = asked + (between - 1) + (said - 1)
    offsets = _offsets(lengths)
    window = torch.repeat_interleave(torch.arange(len(document), device=device), lengths)  # [T]
    place = torch.arange(len(window), device=device) - offsets[window]
    behind = place - (asked + between - 1)[window]
    # Further separators repeat the question's last token; the window's own first token is left out.
    from_question = questions.offsets[question][window] + place.minimum(asked[window] - 1)
    from_document = documents.offsets[window] + 1 + behind.clamp(min=0)
    in_document = behind >= 0
    token_ids = torch.where(
        in_document,
        documents.token_ids[from_document.clamp(max=len(documents.token_ids) - 1)],
        questions.token_ids[from_question],
    )
    cells = (place < asked[window]).nonzero()[:, 0]
    question_offsets = _offsets(questions.offsets.diff()[owners])
    return JoinedTexts(
        token_ids=token_ids,
        type_ids=in_document.to(token_ids.dtype).clamp(max=types - 1),
        offsets=offsets,
        question_cells=cells,
        question_targets=question_offsets[document[window[cells]]] + place[cells],
        question_offsets=question_offsets,
        document_cells=(in_document | (place == 0)).nonzero()[:, 0],
    )


def _offsets(lengths: Tensor) -> Tensor:
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
