"""Turns texts into token ids, each text alone, with a cache for texts that come again."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from cerberank_models.token_cache import TokenCache
from cerberank_models.transformer import PairTemplate
from cerberank_models.word_pieces import word_pieces

MOST_CHARACTERS = 64 * 1024
"""The most characters of a text that any encoder reads, whatever its `max_length`."""

PIECE_CHARACTERS = 16 * 1024
"""About the most characters that are given to the tokenizer at once, unless one text has more. The tokenizer has one
pool of threads for all its callers, so that a few texts wait for everything that was given to it before them."""
ID_BYTES = 4
"""Bytes of a token id. Token ids are kept as `bytes` of int32, which are faster to join and smaller than lists."""

WORD_MARKS, STEM = "\u0120\u2581", 5
"""The characters by which byte-level and SentencePiece tokenizers mark the beginning of a word, and the letters of a
word that count where words are compared."""


def replace_surrogates(text: str) -> str:
    """`text` with every lone surrogate replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Tokens:
    """Turns texts into token ids. Threads may share an instance, because tokenising changes nothing.

    Instances share cached tokens if they have the same limits and the same `digest`, the hash of the tokenizer's file.
    An instance without a digest shares cached tokens with no other.
    """

    def __init__(self, tokenizer: Tokenizer, *, most: int, characters: int, digest: str | None) -> None:
        """Read at most `most` tokens and `characters` characters of a text, and at most `MOST_CHARACTERS`.

        The tokenizer's own truncation and padding are off.
        """
        self.characters = min(MOST_CHARACTERS, characters)
        """The number of a text's characters that are read."""
        self._tokenizer = tokenizer
        self._word_pieces = word_pieces(tokenizer)
        self._most = most
        self._scope = f"{digest or secrets.token_hex()} {self.characters} {most}"

    def __call__(self, texts: Sequence[str], cache: TokenCache | None, partition: str) -> list[bytes]:
        """The token ids of each text as int32. If the text has more than `most` tokens, `most` + 1 are returned.

        Cached tokens are used only within their `partition`, so that response times do not reveal the texts of another.
        """
        cut = [replace_surrogates(text[: self.characters]) for text in texts]
        return self._tokenise(cut) if cache is None else cache.tokens(f"{self._scope} {partition}", cut, self._tokenise)

    def _tokenise(self, texts: list[str]) -> list[bytes]:
        if self._word_pieces is not None:
            return self._word_pieces(texts, self._most + 1)
        ids: list[bytes] = []
        for piece in pieces_of(texts):
            encodings = self._tokenizer.encode_batch_fast(piece, add_special_tokens=False)
            ids += [packed(encoding.ids[: self._most + 1]) for encoding in encodings]
        return ids

    def spanned(self, texts: Sequence[str], cache: TokenCache | None, partition: str) -> list[NDArray[np.int32]]:
        """All tokens of each text, without the limit `most`: ids, starts and ends in the text, shape [3, tokens].

        Starts and ends are Unicode code points. Only `MOST_CHARACTERS` are read. The cache is used as by `__call__`.
        """
        cut = [replace_surrogates(text[:MOST_CHARACTERS]) for text in texts]
        spans = self._span(cut) if cache is None else cache.tokens(f"{self._scope} spans {partition}", cut, self._span)
        return [np.frombuffer(each, dtype=np.int32).reshape(3, -1) for each in spans]

    def _span(self, texts: list[str]) -> list[bytes]:
        packed_spans = []
        for text in texts:  # one at a time, because an `Encoding` takes 100 times the memory of its ids
            (encoding,) = self._tokenizer.encode_batch([text], add_special_tokens=False)
            spans = np.asarray(encoding.offsets, dtype=np.int32).reshape(-1, 2)
            packed_spans.append(packed(encoding.ids) + spans.T.tobytes())
        return packed_spans


def pieces_of(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """The texts in pieces of about `PIECE_CHARACTERS`, each with at least one text.

    >>> [len(piece) for piece in pieces_of(["a" * 10_000] * 3 + ["a"])]
    [2, 2]
    """
    begin = characters = 0
    for end, text in enumerate(texts, start=1):
        characters += len(text)
        if characters >= PIECE_CHARACTERS:
            yield texts[begin:end]
            begin, characters = end, 0
    if begin < len(texts):
        yield texts[begin:]


def packed(ids: list[int]) -> bytes:
    """Token ids as int32."""
    return array("i", ids).tobytes()


def word_stems(tokenizer: Tokenizer) -> NDArray[np.int32]:
    """Shape [vocabulary]: the same number for token ids that begin with the same five letters.

    Case counts for nothing. Only tokens of ASCII characters are cut, because the others of byte-level tokenizers stand
    for bytes. It takes 20 ms for a vocabulary of 30,000, and .3 s for one of 250,000.
    """
    vocabulary = tokenizer.get_vocab()
    stems = np.arange(1 + max(vocabulary.values(), default=0), dtype=np.int32)
    first: dict[str, int] = {}
    for piece, number in vocabulary.items():
        word = piece.lstrip(WORD_MARKS)
        if word.isascii():
            stems[number] = first.setdefault(word.lower()[:STEM], number)
    return stems


def without_limits(tokenizer: Tokenizer) -> None:
    """Switch off the tokenizer's own truncation and padding."""
    # The tokenizer is changed only if needed: a change while another thread encodes raises an error in that thread.
    if tokenizer.truncation is not None:
        tokenizer.no_truncation()
    if tokenizer.padding is not None:
        tokenizer.no_padding()


def special_tokens(tokenizer: Tokenizer, template: PairTemplate) -> tuple[int, int]:
    """Switch off the tokenizer's truncation and padding; returns the ids of the first token and of the separator.

    Raises ValueError when the template's special tokens are missing from the vocabulary.
    """
    without_limits(tokenizer)
    first, separator = (tokenizer.token_to_id(token) for token in (template.first, template.separator))
    if first is None or separator is None:
        raise ValueError(f"the tokenizer lacks {template.first} or {template.separator}, which the model needs")
    return first, separator


def check_embeddings(tokenizer: Tokenizer, rows: int) -> None:
    """Raise ValueError, which names tokens, if a text can have a token without a row in a table of `rows` embeddings.

    Such a text would make every pair in its batch fail.
    """
    if largest_token_id(tokenizer) < rows:
        return
    outside = sorted((number, token) for token, number in tokenizer.get_vocab().items() if number >= rows)
    names = ", ".join(f"{token!r} ({number})" for number, token in outside[:3]) + (", ..." if len(outside) > 3 else "")
    raise ValueError(f"{len(outside)} tokens of the tokenizer are not among the network's {rows} embeddings: {names}")


def largest_token_id(tokenizer: Tokenizer) -> int:
    """The largest token id that a text can have; the network's `vocab_size` must be larger."""
    size = tokenizer.get_vocab_size()
    # If every id below `size` is used, no id is larger. The whole vocabulary is read only if ids have gaps, because
    # reading it blocks all other Python threads.
    if all(tokenizer.id_to_token(number) is not None for number in range(size)):
        return size - 1
    return max(tokenizer.get_vocab().values())
