"""(question, candidates, context) -> token ids. The only place that tokenises and truncates.

Layout: BERT and ELECTRA `[CLS] q [SEP] a [SEP] (c [SEP])`, RoBERTa `<s> q </s></s> a </s>
(</s> c </s>)`; the context c is the previous and the next sentence (SSP section 3). Pairs are
packed one after another: nothing is padded here.

Budget: the question is capped, then the candidate is cut at its end, then the context takes what
is left. An empty candidate is an empty segment and is scored like any other text. Lone surrogates,
which UTF-8 cannot hold, become U+FFFD. Texts beyond `CHARACTERS_PER_TOKEN * max_length` characters
are cut before tokenising, so that a 100 kB candidate costs no more than a long sentence; beyond
`MOST_CHARACTERS` they are not read by any encoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from cerberank_models.config import PAIR_TEMPLATES, EncodingConfig, Family

CHARACTERS_PER_TOKEN = 32
"""A generous bound: English has about 4.5 characters per word piece; only blanks and long words exceed it."""

MOST_CHARACTERS = 64 * 1024
"""No encoder reads more characters of a text, whatever its `max_length`, so callers may cut texts here (`readable`)."""

QUESTIONS = 256
"""Number of questions whose tokens an encoder caches, because clients split one question over several calls."""


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


def readable(text: str) -> str:
    """`text`, or a prefix for which every encoder gives the same tokens and the same truncation."""
    return text[: MOST_CHARACTERS + 1]


def replace_surrogates(text: str) -> str:
    """`text` with every lone surrogate replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class PairEncoder:
    """Encodes pairs; make one per worker thread. Several may share a tokenizer, because encoding does not change it."""

    def __init__(self, tokenizer: Tokenizer, *, family: Family, config: EncodingConfig, type_vocab_size: int) -> None:
        """Switch off the tokenizer's own truncation and padding, for all encoders that share it.

        Raises ValueError when the family's special tokens are missing from the vocabulary.
        """
        # Changing a tokenizer while another thread encodes with it raises an error in that thread.
        if tokenizer.truncation is not None:
            tokenizer.no_truncation()
        if tokenizer.padding is not None:
            tokenizer.no_padding()
        self.tokenizer = tokenizer
        """Shared between encoders: opening one takes 10 MB, and 30 ms in which no other Python thread runs."""
        self._config = config
        self._characters = min(MOST_CHARACTERS, CHARACTERS_PER_TOKEN * config.max_length)
        # A cached method would refer to its encoder and so keep the encoder and its tokenizer (10 MB) alive.
        self._tokenise = partial(_tokenise, tokenizer, self._characters)
        self._tokenise_question = partial(_tokenise_one, tokenizer, self._characters, config.question_length)
        self._remembered = lru_cache(QUESTIONS)(self._tokenise_question)
        template = PAIR_TEMPLATES[family]
        first, separator = (tokenizer.token_to_id(token) for token in (template.first, template.separator))
        if first is None or separator is None:
            raise ValueError(f"the tokenizer lacks {template.first} or {template.separator}, which {family} needs")
        self._head = [first]
        self._join = [separator] * template.between
        self._tail = [separator]
        self._types = [min(segment, type_vocab_size - 1) for segment in range(3)]
        self._join_splits = 1  # how many special tokens of a join belong to the segment before it
        self._specials = len(self._head) + len(self._tail) + (config.segments - 1) * len(self._join)

    @property
    def largest_token_id(self) -> int:
        """The largest id that any text can give; the network's `vocab_size` must be above it."""
        size = self.tokenizer.get_vocab_size()
        # If every id below `size` is used, none is larger. The whole vocabulary is read only where ids have gaps,
        # because reading it blocks all other Python threads.
        if all(self.tokenizer.id_to_token(number) is not None for number in range(size)):
            return size - 1
        return max(self.tokenizer.get_vocab().values())

    def encode(self, question: str, candidates: Sequence[Candidate]) -> EncodedPairs:
        """Encode one question with all its candidates; the question is tokenised once."""
        budget = self._config.max_length - self._specials
        # Long questions are not cached: clients could fill the memory with questions of megabytes.
        short = len(question) <= self._characters
        question_ids, question_cut = (self._remembered if short else self._tokenise_question)(question)
        texts, texts_cut = self._tokenise([candidate.text for candidate in candidates], budget - len(question_ids))
        contexts: list[list[int]] | None = None
        if self._config.segments == 3:
            # Byte-level tokenizers encode a blank as a token, so a missing sentence must not leave a blank.
            contexts, _ = self._tokenise([" ".join(filter(None, (c.previous, c.next))) for c in candidates], budget)
        token_ids: list[int] = []
        type_ids: list[int] = []
        offsets = [0]
        for row, text in enumerate(texts):
            segments = [question_ids, text]
            if contexts is not None:
                segments.append(contexts[row][: budget - len(question_ids) - len(text)])
            self._append(segments, token_ids, type_ids)
            offsets.append(len(token_ids))
        return EncodedPairs(
            token_ids=np.asarray(token_ids, dtype=np.int32),
            type_ids=np.asarray(type_ids, dtype=np.int32),
            offsets=np.asarray(offsets, dtype=np.int64),
            truncated=np.asarray(texts_cut, dtype=np.bool_) | question_cut,
        )

    def _append(self, segments: list[list[int]], token_ids: list[int], type_ids: list[int]) -> None:
        last = len(segments) - 1
        for index, segment in enumerate(segments):
            before = self._head if index == 0 else self._join[self._join_splits :]
            after = self._tail if index == last else self._join[: self._join_splits]
            token_ids += before
            token_ids += segment
            token_ids += after
            type_ids += [self._types[index]] * (len(before) + len(segment) + len(after))


def _tokenise(
    tokenizer: Tokenizer, characters: int, texts: Sequence[str], limit: int
) -> tuple[list[list[int]], list[bool]]:
    """Token ids of each text, cut to `limit`, and whether it was cut; no text is read beyond `characters`."""
    short = [replace_surrogates(text[:characters]) for text in texts]
    encodings = tokenizer.encode_batch_fast(short, add_special_tokens=False)
    ids = [encoding.ids for encoding in encodings]
    cut = [len(tokens) > limit or len(text) > characters for tokens, text in zip(ids, texts, strict=True)]
    return [tokens[:limit] for tokens in ids], cut


def _tokenise_one(tokenizer: Tokenizer, characters: int, limit: int, text: str) -> tuple[list[int], bool]:
    (ids,), (cut,) = _tokenise(tokenizer, characters, [text], limit)
    return ids, cut
