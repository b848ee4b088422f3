"""(question, candidates, context) -> token ids of pairs; `texts/encoding.py` encodes texts each alone.

Layout: BERT and ELECTRA `[CLS] q [SEP] a [SEP] (c [SEP])`, RoBERTa `<s> q </s></s> a </s>
(</s> c </s>)`; the context c is the previous and the next sentence (SSP section 3). Pairs are
packed one after another: nothing is padded here.

Budget: the question is capped, then the candidate is cut at its end, then the context takes what
is left; with `longest_first`, the longest segments are cut at their ends instead. An empty candidate
is an empty segment and is scored like any other text. Lone surrogates, which UTF-8 cannot hold,
become U+FFFD. Texts beyond `CHARACTERS_PER_TOKEN * max_length` characters are cut before tokenising,
so that a 100 kB candidate costs no more than a long sentence; beyond `MOST_CHARACTERS` they are not
read by any encoder.
"""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from cerberank_models.config import EncodingConfig
from cerberank_models.token_cache import TokenCache
from cerberank_models.transformer import PAIR_TEMPLATES, Family, PairTemplate

CHARACTERS_PER_TOKEN = 32
"""A generous bound: English has about 4.5 characters per word piece; only blanks and long words exceed it."""

MOST_CHARACTERS = 64 * 1024
"""No encoder reads more characters of a text, whatever its `max_length`."""

ID_BYTES = 4
"""Tokens of a text are the `bytes` of int32, which are joined faster than lists and take less of the cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A candidate sentence with its context; an empty `previous` or `next` means that there is none."""

    text: str
    previous: str = ""
    next: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedPairs:
    """n encoded pairs, packed: pair i owns tokens `offsets[i]:offsets[i + 1]`."""

    token_ids: NDArray[np.int32]
    type_ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    truncated: NDArray[np.bool_]

    def __len__(self) -> int:
        """The number of pairs n."""
        return len(self.truncated)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each pair, shape [n]."""
        return np.diff(self.offsets)

    @property
    def tokens(self) -> int:
        """Tokens of all pairs together."""
        return int(self.offsets[-1])

    def select(self, rows: NDArray[np.integer]) -> EncodedPairs:
        """The pairs `rows`, in that order."""
        index, offsets = packed_rows(self.offsets, rows)
        return EncodedPairs(
            token_ids=self.token_ids[index],
            type_ids=self.type_ids[index],
            offsets=offsets,
            truncated=self.truncated[rows],
        )


def packed_rows(offsets: NDArray[np.int64], rows: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token indices of the packed sequences `rows`, and the offsets of these sequences after gathering."""
    lengths = np.diff(offsets)[rows]
    gathered = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lengths, out=gathered[1:])
    shift = np.repeat(offsets[:-1][rows] - gathered[:-1], lengths)
    return np.arange(gathered[-1], dtype=np.int64) + shift, gathered


def concat_pairs(parts: Sequence[EncodedPairs]) -> EncodedPairs:
    """All pairs of `parts`, in order."""
    if not parts:
        raise ValueError("nothing to concatenate")
    lengths = np.concatenate([part.lengths for part in parts])
    return EncodedPairs(
        token_ids=np.concatenate([part.token_ids for part in parts]),
        type_ids=np.concatenate([part.type_ids for part in parts]),
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        truncated=np.concatenate([part.truncated for part in parts]),
    )


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


def special_tokens(tokenizer: Tokenizer, template: PairTemplate) -> tuple[int, int]:
    """Switch off the tokenizer's own truncation and padding; the ids of its first token and of its separator.

    Raises ValueError when the template's special tokens are missing from the vocabulary.
    """
    # Changing a tokenizer while another thread encodes with it raises an error in that thread.
    if tokenizer.truncation is not None:
        tokenizer.no_truncation()
    if tokenizer.padding is not None:
        tokenizer.no_padding()
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


class PairEncoder:
    """Encodes pairs. Threads may share one, because encoding changes neither the encoder nor its tokenizer."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        family: Family | Literal["opaque"],
        config: EncodingConfig,
        type_vocab_size: int,
        tokenizer_digest: str | None = None,
    ) -> None:
        """Switch off the tokenizer's own truncation and padding, for all encoders that share it.

        The special tokens are the `config`'s, or else the family's. `tokenizer_digest` is the hash of the tokenizer's
        file (`Tokens`). Raises ValueError when special tokens are missing from the vocabulary, or not known.
        """
        template = config.template or (None if family == "opaque" else PAIR_TEMPLATES[family])
        if template is None:
            raise ValueError("the pairs of an opaque network need encoding.template")
        first, separator = special_tokens(tokenizer, template)
        self.tokenizer = tokenizer
        """Shared between encoders: opening one takes 10 MB, and 30 ms in which no other Python thread runs."""
        self._config = config
        self._head = packed([first])
        self._join = packed([separator] * template.between)
        self._tail = packed([separator])
        self._types = np.minimum(np.arange(config.segments, dtype=np.int32), type_vocab_size - 1, dtype=np.int32)
        # The first separator of a join belongs to the segment before it, the others to the segment behind it.
        self._specials = np.asarray([2] + [template.between] * (config.segments - 1), dtype=np.int64)
        self._budget = config.max_length - int(self._specials.sum())
        self._tokens = Tokens(
            tokenizer,
            most=self._budget,
            characters=CHARACTERS_PER_TOKEN * config.max_length,
            digest=tokenizer_digest,
        )

    def encode(
        self,
        question: str,
        candidates: Sequence[Candidate],
        cache: TokenCache | None = None,
        *,
        partition: str = "",
    ) -> EncodedPairs:
        """Encode one question with all its candidates; the question is tokenised once.

        Tokens in the `cache` are used only within a `partition`, so that no time tells what is in another one.
        """
        rows = len(candidates)
        whole = [question, *(each.text for each in candidates)]
        if self._config.segments == 3:
            # Byte-level tokenizers encode a blank as a token, so a missing sentence must not leave a blank.
            whole += [" ".join(filter(None, (each.previous, each.next))) for each in candidates]
        tokens, characters = self._tokens(whole, cache, partition), self._tokens.characters
        segments = [[tokens[0]] * rows, tokens[1 : rows + 1], tokens[rows + 1 :]][: self._config.segments]
        lengths = np.full((rows, len(segments)), len(tokens[0]) // ID_BYTES, dtype=np.int64)
        for index, segment in enumerate(segments[1:], start=1):
            lengths[:, index] = lengths_of(segment) // ID_BYTES
        kept = self._kept(lengths)
        shorter = kept < lengths
        for index in np.flatnonzero(shorter.any(axis=0)).tolist():
            ends = (ID_BYTES * kept[:, index]).tolist()
            segments[index] = [ids[:end] for ids, end in zip(segments[index], ends, strict=True)]
        cut = shorter[:, :2].any(axis=1) | (lengths_of(whole[1 : rows + 1]) > characters)
        return self._assembled(segments, kept, truncated=cut | (len(question) > characters))

    def _kept(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many tokens of each segment fit, as `lengths`: the tokens that each has, `[n, segments]`."""
        if self._config.truncation == "longest_first":
            return longest_first(lengths, self._budget)
        most = lengths.copy()
        most[:, 0] = np.minimum(most[:, 0], self._config.question_length)
        left = self._budget - most.cumsum(axis=1) + most
        return np.minimum(most, np.maximum(left, 0))

    def _assembled(
        self, segments: list[list[bytes]], lengths: NDArray[np.int64], *, truncated: NDArray[np.bool_]
    ) -> EncodedPairs:
        """The n pairs of the n texts of each segment, whose tokens are `lengths[n, segments]`."""
        rows = len(truncated)
        parts: list[Iterable[bytes]] = [repeat(self._head), segments[0]]
        for segment in segments[1:]:
            parts += [repeat(self._join), segment]
        pieces = chain.from_iterable(zip(*parts, repeat(self._tail, rows), strict=False))
        by_segment = lengths + self._specials
        offsets = np.zeros(rows + 1, dtype=np.int64)
        np.cumsum(by_segment.sum(axis=1), out=offsets[1:])
        return EncodedPairs(
            token_ids=np.frombuffer(bytearray().join(pieces), dtype=np.int32),
            type_ids=np.repeat(np.tile(self._types, rows), by_segment.ravel()),
            offsets=offsets,
            truncated=truncated,
        )


def longest_first(lengths: NDArray[np.int64], room: int) -> NDArray[np.int64]:
    """How many tokens of each segment `[n, segments]` are kept when the longest are cut until all fit into `room`.

    >>> longest_first(np.asarray([[3, 9, 9], [2, 3, 4], [9, 1, 9]]), 10).tolist()
    [[3, 3, 4], [2, 3, 4], [4, 1, 5]]
    """
    order = np.argsort(lengths, axis=1, kind="stable")
    rows, left, kept = np.arange(len(lengths)), np.full(len(lengths), room, dtype=np.int64), np.empty_like(lengths)
    for place, segment in enumerate(order.T):
        kept[rows, segment] = np.minimum(lengths[rows, segment], left // (lengths.shape[1] - place))
        left -= kept[rows, segment]
    return kept


def packed(ids: list[int]) -> bytes:
    """Token ids as int32."""
    return array("i", ids).tobytes()


def lengths_of(items: Sequence[Sized]) -> NDArray[np.int64]:
    """The length of each item, shape [n]."""
    return np.fromiter(map(len, items), dtype=np.int64, count=len(items))
