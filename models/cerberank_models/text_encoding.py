"""Turns texts into token ids for text rankers, each text alone: `[CLS] text [SEP]`. Sequences are packed, not padded.

The windows of a long document do not overlap, and each has its own special tokens. A joint encoder assembles its
sequences from the same windows (`network/texts.py`), so that students and teachers see the same tokens of a text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from cerberank_models.encoding import CHARACTERS_PER_TOKEN, EncodedPairs, lengths_of, offsets_of
from cerberank_models.question_tokens import QuestionTokens
from cerberank_models.text_config import TextRankerConfig
from cerberank_models.token_cache import TokenCache
from cerberank_models.tokens import ID_BYTES, Tokens, packed, special_tokens
from cerberank_models.transformer import PAIR_TEMPLATES


class TextEncoder:
    """Encodes questions and candidates. Threads may share an instance."""

    def __init__(self, tokenizer: Tokenizer, config: TextRankerConfig, *, tokenizer_digest: str | None = None) -> None:
        """Switch off the tokenizer's own truncation and padding, for all encoders that share it.

        `tokenizer_digest` is the hash of the tokenizer's file (`Tokens`). Raises ValueError when the family's special
        tokens are missing from the vocabulary.
        """
        first, separator = special_tokens(tokenizer, PAIR_TEMPLATES[config.transformer.family])
        self.tokenizer = tokenizer
        """Shared between encoders."""
        lengths, colbert = config.encoding, config.encoding.colbert
        marks = ([], []) if colbert is None else ([colbert.question_mark], [colbert.document_mark])
        self._question_head = packed([first, *marks[0]])
        self._candidate_head = packed([first, *marks[1]])
        self._tail = packed([separator])
        fill = None if colbert is None else colbert.fill
        self._fill = b"" if fill is None else packed([fill])
        self._filled = ID_BYTES * ((colbert and colbert.filled) or lengths.question_length)
        self._candidate = ID_BYTES * lengths.document_length
        self._window = ID_BYTES * lengths.window

        self._question_tokens = QuestionTokens(
            tokenizer,
            limit=lengths.question_length,
            part=lengths.question_part,
            characters=CHARACTERS_PER_TOKEN * lengths.question_length,
            digest=tokenizer_digest,
        )
        most = lengths.document_length
        self._candidate_tokens = Tokens(
            tokenizer, most=most, characters=CHARACTERS_PER_TOKEN * most, digest=tokenizer_digest
        )

    def questions(self, texts: Sequence[str], cache: TokenCache | None = None, *, partition: str = "") -> EncodedPairs:
        """Each question as a text of at most `question_length` tokens; questions of a ColBERT are filled up.

        `cache` and `partition` are used as in `candidates`.
        """
        pieces, truncated = self._question_tokens(texts, cache, partition)
        if self._fill:  # after the separator
            ends = [self._tail + self._fill * ((self._filled - len(ids)) // ID_BYTES) for ids in pieces]
            pieces = [ids + end for ids, end in zip(pieces, ends, strict=True)]
            return self._framed(pieces, truncated, self._question_head, b"")
        return self._framed(pieces, truncated, self._question_head, self._tail)

    def candidates(self, texts: Sequence[str], cache: TokenCache | None = None, *, partition: str = "") -> EncodedPairs:
        """Each candidate as a text of at most `document_length` tokens; an empty text has only special tokens.

        Cached tokens are used only within their `partition`, so that response times do not reveal the texts of another.
        """
        tokens = self._candidate_tokens(texts, cache, partition)
        pieces = [ids[: self._candidate] for ids in tokens]
        return self._framed(pieces, self._cut(texts, tokens), self._candidate_head, self._tail)

    def documents(self, texts: Sequence[str]) -> tuple[EncodedPairs, NDArray[np.int64]]:
        """Each document as windows of at most `window` tokens, `document_length` in all; an empty text has one window.

        The returned array holds the offsets of the windows: text i has the windows `offsets[i]:offsets[i + 1]`.
        """
        tokenised = self._candidate_tokens(texts, None, "")
        cut = self._cut(texts, tokenised)
        pieces = [
            [ids[start : min(start + self._window, self._candidate)] for start in self._starts(ids)]
            for ids in tokenised
        ]
        counts = lengths_of(pieces)
        windows = [piece for windows_of_text in pieces for piece in windows_of_text]
        encoded = self._framed(windows, np.repeat(cut, counts), self._candidate_head, self._tail)
        return encoded, offsets_of(counts)

    def _cut(self, texts: Sequence[str], tokenised: Sequence[bytes]) -> NDArray[np.bool_]:
        """True for each candidate or document that is cut."""
        return (lengths_of(tokenised) > self._candidate) | (lengths_of(texts) > self._candidate_tokens.characters)

    def _starts(self, ids: bytes) -> range:
        return range(0, max(1, min(len(ids), self._candidate)), self._window)

    @staticmethod
    def _framed(pieces: Sequence[bytes], truncated: NDArray[np.bool_], head: bytes, tail: bytes) -> EncodedPairs:
        token_ids = np.frombuffer(bytearray().join(head + ids + tail for ids in pieces), dtype=np.int32)
        offsets = np.zeros(len(pieces) + 1, dtype=np.int64)
        np.cumsum((lengths_of(pieces) + len(head + tail)) // ID_BYTES, out=offsets[1:])
        return EncodedPairs(
            token_ids=token_ids, type_ids=np.zeros_like(token_ids), offsets=offsets, truncated=truncated
        )
