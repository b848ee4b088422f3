"""Token ids of WordPiece tokenizers by nanotoken (extra `nanotoken`), in a small part of Hugging Face's time.

It is used only if it gives the ids of Hugging Face's tokenizer for `CHECKED`. Offsets are Hugging Face's alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tokenizers import Tokenizer, models

if TYPE_CHECKING:
    from nanotoken import WordPieceTokenizer

logger = logging.getLogger(__name__)

CACHE_WORDS = 1 << 14
"""The most words in each of the two caches that nanotoken keeps for a thread: about 2 MB a thread. By default it would
be 130 MB. The caches belong to the process, so that a word costs less after any request had it: a microsecond at most,
while a question takes milliseconds."""
CHECKED = (
    "The Eiffel Tower, completed in 1889, is 330 metres tall (1,083 ft).",
    "Crème brûlée; naïve façade \u2013 Ærøskøbing… “quoted” \u2018single\u2019 don't e\u0301e\u0300 a\u00adb",
    "İstanbul \u0131 ß ẞ ς Σ ﬁ ﬂ Ω \u2126 ½ № ① \uff46\uff55 \U0001d49c",
    "日本語のテキスト 한국어 ไทย עברית العربية हिन्दी русский Ελληνικά",
    "👩‍👩‍👧 🇩🇪 ☃\ufe0f \u200b\u200d\u202e\ufeff\x00\x01\x7f\x0b\x0c\u2028\u3000\tx\r\ny",
    "[CLS] a [SEP] b[MASK]c ##ing [UNK] unaffableness " + "x" * 201,
    "",
    " ",
)
"""Texts that tokenizers treat differently: accents, case, scripts, blanks, controls, special tokens, a long word."""


class WordPieces:
    """Turns texts into token ids. Threads may share an instance."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raises ImportError without the package, and ValueError if it does not give the ids of `tokenizer`."""
        import nanotoken  # noqa: PLC0415 - an optional dependency

        if not isinstance(tokenizer.model, models.WordPiece):
            raise ValueError("nanotoken knows WordPiece alone")
        nanotoken.set_cache_entries(CACHE_WORDS)
        self._tokenizer = tokenizer
        self._fast: WordPieceTokenizer = nanotoken.WordPieceTokenizer.from_json(tokenizer.to_str())
        expected = [encoding.ids for encoding in tokenizer.encode_batch_fast(list(CHECKED), add_special_tokens=False)]
        ids, offsets = self._fast.encode_batch(CHECKED, add_special_tokens=False, parallel=False)
        if [ids[start:end].tolist() for start, end in pairwise(offsets)] != expected:
            raise ValueError("nanotoken gives other ids than Hugging Face's tokenizer")

    def __reduce__(self) -> tuple[type[WordPieces], tuple[Tokenizer]]:
        """Copies in other processes are opened anew."""
        return WordPieces, (self._tokenizer,)

    def __call__(self, texts: Sequence[str], most: int) -> list[bytes]:
        """At most `most` token ids of each text as int32. The texts must not contain lone surrogates."""
        # The pool of threads would be shared with all callers.
        ids, offsets = self._fast.encode_batch(texts, add_special_tokens=False, max_length=most, parallel=False)
        content, ends = ids.tobytes(), (ids.itemsize * offsets).tolist()
        return [content[start:end] for start, end in pairwise(ends)]


def word_pieces(tokenizer: Tokenizer) -> WordPieces | None:
    """Nanotoken for `tokenizer`, whose own truncation and padding are off; None without the package or equal ids."""
    try:
        return WordPieces(tokenizer)
    except ImportError:
        return None
    except ValueError as error:
        logger.info("Hugging Face's tokenizer is used: %s", error)
        return None
