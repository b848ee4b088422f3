"""Texts to token ids, each alone: `[CLS] text [SEP]`, a long document in several windows; packed, never padded.

Windows follow each other without overlap, and each has its own special tokens. A joint encoder assembles its sequences
from the same windows (`network/text_ranker/texts.py`), so that students and teachers see the same tokens of a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from cerberank_models.encoding import CHARACTERS_PER_TOKEN
from cerberank_models.texts.config import TextEncodingConfig
from cerberank_models.tokens import MOST_CHARACTERS, replace_surrogates, special_tokens
from cerberank_models.transformer import PAIR_TEMPLATES, Family


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedTexts:
    """n texts in w windows, packed."""

    token_ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    """`[w + 1]`: window i owns the tokens `offsets[i]:offsets[i + 1]`."""
    windows: NDArray[np.int64]
    """`[n + 1]`: text i owns the windows `windows[i]:windows[i + 1]`, at least one."""


class TextEncoder:
    """Encodes questions and documents."""

    def __init__(self, tokenizer: Tokenizer, *, family: Family, config: TextEncodingConfig) -> None:
        """Switch off the tokenizer's own truncation and padding.

        Raises ValueError when the tokenizer lacks the family's special tokens.
        """
        self._first, self._separator = special_tokens(tokenizer, PAIR_TEMPLATES[family])
        self.tokenizer = tokenizer
        self.config = config

    def questions(self, texts: Sequence[str]) -> EncodedTexts:
        """Each question as one window of at most `question_length` tokens."""
        return self._encode(texts, self.config.question_length, self.config.question_length)

    def documents(self, texts: Sequence[str]) -> EncodedTexts:
        """Each document as windows of at most `window` tokens, `document_length` in all; an empty one has a window."""
        return self._encode(texts, self.config.document_length, self.config.window)

    def _encode(self, texts: Sequence[str], length: int, window: int) -> EncodedTexts:
        characters = min(MOST_CHARACTERS, CHARACTERS_PER_TOKEN * length)
        cut = [replace_surrogates(text[:characters]) for text in texts]
        pieces: list[list[int]] = []
        windows = [0]
        for encoding in self.tokenizer.encode_batch_fast(cut, add_special_tokens=False):
            ids = encoding.ids[:length]
            starts = range(0, max(1, len(ids)), window)
            pieces += [[self._first, *ids[start : start + window], self._separator] for start in starts]
            windows.append(len(pieces))
        return EncodedTexts(
            token_ids=np.asarray([number for piece in pieces for number in piece], dtype=np.int32),
            offsets=np.cumsum([0, *map(len, pieces)], dtype=np.int64),
            windows=np.asarray(windows, dtype=np.int64),
        )
