"""Texts to token ids, each text alone, with a cache of texts that come again."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from cerberank_models.token_cache import TokenCache
from cerberank_models.transformer import PairTemplate

MOST_CHARACTERS = 64 * 1024
"""No encoder reads more characters of a text, whatever its `max_length`."""

ID_BYTES = 4
"""Tokens of a text are the `bytes` of int32, which are joined faster than lists and take less of the cache."""


def replace_surrogates(text: str) -> str:
    """`text` with every lone surrogate replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Tokens:
    """Texts as token ids, each alone. Threads may share one, because tokenising changes nothing.

    Those with the same `digest`, the hash of the tokenizer's file, and the same bounds share cached tokens; without a
    digest one shares them with none.
    """

    def __init__(self, tokenizer: Tokenizer, *, most: int, characters: int, digest: str | None) -> None:
        """`most` tokens of a text are read, and `characters` of it, but never more than `MOST_CHARACTERS`."""
        self.characters = min(MOST_CHARACTERS, characters)
        """A text's characters beyond these are not read."""
        self._tokenizer, self._most = tokenizer, most
        self._scope = f"{digest or secrets.token_hex()} {self.characters} {most}"

    def __call__(self, texts: Sequence[str], cache: TokenCache | None, partition: str) -> list[bytes]:
        """The token ids of each text as int32; one more than `most` shows that the text is cut.

        Tokens in the `cache` are used only within a `partition`, so that no time tells what is in another one.
        """
        cut = [replace_surrogates(text[: self.characters]) for text in texts]
        return self._tokenise(cut) if cache is None else cache.tokens(f"{self._scope} {partition}", cut, self._tokenise)

    def _tokenise(self, texts: list[str]) -> list[bytes]:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [packed(encoding.ids[: self._most + 1]) for encoding in encodings]

    def spanned(self, texts: Sequence[str], cache: TokenCache | None, partition: str) -> list[NDArray[np.int32]]:
        """All tokens of each text, however many: ids, first characters and ends in the text, shape [3, tokens].

        Characters are Unicode code points. Only `MOST_CHARACTERS` are read. The cache is used as for calls.
        """
        cut = [replace_surrogates(text[:MOST_CHARACTERS]) for text in texts]
        found = self._span(cut) if cache is None else cache.tokens(f"{self._scope} spans {partition}", cut, self._span)
        return [np.frombuffer(each, dtype=np.int32).reshape(3, -1) for each in found]

    def _span(self, texts: list[str]) -> list[bytes]:
        found = []
        for text in texts:  # each alone, because a token of an encoding takes 100 times the memory of its id
            (encoding,) = self._tokenizer.encode_batch([text], add_special_tokens=False)
            spans = np.asarray(encoding.offsets, dtype=np.int32).reshape(-1, 2)
            found.append(packed(encoding.ids) + spans.T.tobytes())
        return found


def packed(ids: list[int]) -> bytes:
    """Token ids as int32."""
    return array("i", ids).tobytes()


def without_limits(tokenizer: Tokenizer) -> None:
    """Switch off the tokenizer's own truncation and padding."""
    # Changing a tokenizer while another thread encodes with it raises an error in that thread.
    if tokenizer.truncation is not None:
        tokenizer.no_truncation()
    if tokenizer.padding is not None:
        tokenizer.no_padding()


def special_tokens(tokenizer: Tokenizer, template: PairTemplate) -> tuple[int, int]:
    """Switch off the tokenizer's own truncation and padding; the ids of its first token and of its separator.

    Raises ValueError when the template's special tokens are missing from the vocabulary.
    """
    without_limits(tokenizer)
    first, separator = (tokenizer.token_to_id(token) for token in (template.first, template.separator))
    if first is None or separator is None:
        raise ValueError(f"the tokenizer lacks {template.first} or {template.separator}, which the model needs")
    return first, separator


def largest_token_id(tokenizer: Tokenizer) -> int:
    """The largest id that any text can give; the network's `vocab_size` must be above it."""
    size = tokenizer.get_vocab_size()
    # If every id below `size` is used, none is larger. The whole vocabulary is read only where ids have gaps,
    # because reading it blocks all other Python threads.
    if all(tokenizer.id_to_token(number) is not None for number in range(size)):
        return size - 1
    return max(tokenizer.get_vocab().values())
