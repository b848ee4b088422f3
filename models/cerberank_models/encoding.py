"""(question, candidates, context) -> token ids of pairs; `text_encoding.py` encodes texts each alone.

Layout: BERT and ELECTRA `[CLS] q [SEP] a [SEP] (c [SEP])`, RoBERTa `<s> q </s></s> a </s>
(</s> c </s>)`; the context c is the previous and the next sentence (SSP section 3). Pairs are
packed one after another: nothing is padded here.

Budget: the question is capped, then the candidate is cut at its end, then the context takes what
is left; with `longest_first`, the longest segments are cut at their ends instead. An empty candidate
is an empty segment and is scored like any other text. Lone surrogates, which UTF-8 cannot hold,
become U+FFFD. Texts beyond `CHARACTERS_PER_TOKEN * max_length` characters are cut before tokenising,
so that a 100 kB candidate costs no more than a long sentence; beyond `MOST_CHARACTERS` they are not
read by any encoder.

A decoder's pairs have a prompt in the place of special tokens (`frame.py`), with an instruction that a call may give.

With a `Windowing` a candidate that does not fit is read in several pairs: each holds a window where
the cut text would be, beside the question and the context that the cut pair would hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from cerberank_models.config import EncodingConfig
from cerberank_models.frame import Frame, InstructionError, prompt_frame, template_frame
from cerberank_models.token_cache import TokenCache
from cerberank_models.tokens import ID_BYTES, MOST_CHARACTERS, Tokens, replace_surrogates, without_limits
from cerberank_models.transformer import PAIR_TEMPLATES, Family
from cerberank_models.windows import NO_LIMIT, NO_SPAN, Windowing, Windows, cut, tokens_of

CHARACTERS_PER_TOKEN = 32
"""A generous bound: English has about 4.5 characters per word piece; only blanks and long words exceed it."""
UNKNOWN_TOKENS = ("[UNK]", "<unk>")
"""The token for what a vocabulary does not know. Byte-level tokenizers have one too, and never give it."""
CHARACTERS_PER_WINDOW_TOKEN = 8
"""The same for the second reading of a text that needs windows, because 65,536 characters take up to 0.1 s."""


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
    """True where the candidate's end is not read, neither in this pair nor in the candidate's others."""
    windows: Windows | None = None
    """The pairs that are windows of one candidate; None where every candidate is one pair."""
    question_truncated: bool = False
    """True where the question's end is not read in some pair."""
    unknown: NDArray[np.bool_] | None = None
    """True where most of the candidate's tokens in the pair are unknown to the vocabulary; None where no token is."""
    question_unknown: bool = False
    """True where most of the question's tokens are unknown."""
    prefixes: NDArray[np.int64] | None = None
    """The number of tokens that each pair begins with and shares with others of its question, where a decoder may
    compute these once, shape [n]; None for encoders.
    """

    def __len__(self) -> int:
        """The number of pairs n."""
        return len(self.truncated)

    @property
    def candidates(self) -> int:
        """The number of candidates."""
        return len(self) if self.windows is None else len(self.windows)

    @property
    def truncated_candidates(self) -> NDArray[np.bool_]:
        """`truncated` by candidate."""
        return self.truncated if self.windows is None else self.truncated[self.windows.first[:-1]]

    @property
    def unknown_candidates(self) -> NDArray[np.bool_]:
        """`unknown` by candidate, in all of its windows."""
        if self.unknown is None:
            return np.zeros(self.candidates, np.bool_)
        return self.unknown if self.windows is None else np.logical_and.reduceat(self.unknown, self.windows.first[:-1])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each pair, shape [n]."""
        return np.diff(self.offsets)

    @property
    def tokens(self) -> int:
        """Tokens of all pairs together."""
        return int(self.offsets[-1])

    def without_prefixes(self) -> EncodedPairs:
        """The same pairs, each of which is computed whole."""
        return replace(self, prefixes=None)

    def select(self, rows: NDArray[np.integer]) -> EncodedPairs:
        """The pairs `rows`, in that order, each as a candidate."""
        index, offsets = packed_rows(self.offsets, rows)
        return EncodedPairs(
            token_ids=self.token_ids[index],
            type_ids=self.type_ids[index],
            offsets=offsets,
            truncated=self.truncated[rows],
            question_truncated=self.question_truncated,
            prefixes=None if self.prefixes is None else self.prefixes[rows],
        )


def packed_rows(offsets: NDArray[np.int64], rows: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token indices of the packed sequences `rows`, and the offsets of these sequences after gathering."""
    lengths = np.diff(offsets)[rows]
    gathered = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lengths, out=gathered[1:])
    shift = np.repeat(offsets[:-1][rows] - gathered[:-1], lengths)
    return np.arange(gathered[-1], dtype=np.int64) + shift, gathered


def concat_pairs(parts: Sequence[EncodedPairs]) -> EncodedPairs:
    """All pairs of `parts`, in order, each as a candidate."""
    if not parts:
        raise ValueError("nothing to concatenate")
    lengths = np.concatenate([part.lengths for part in parts])
    prefixes = [part.prefixes for part in parts if part.prefixes is not None]
    return EncodedPairs(
        token_ids=np.concatenate([part.token_ids for part in parts]),
        type_ids=np.concatenate([part.type_ids for part in parts]),
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        truncated=np.concatenate([part.truncated for part in parts]),
        prefixes=np.concatenate(prefixes) if len(prefixes) == len(parts) else None,
    )


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

        The special tokens are the `config`'s, or else the family's; a decoder has the `config`'s prompt in their place.
        `tokenizer_digest` is the hash of the tokenizer's file (`Tokens`). Raises ValueError when special tokens are
        missing from the vocabulary, or not known, and for a prompt that leaves no room.
        """
        template = config.template or (None if family == "opaque" else PAIR_TEMPLATES.get(family))
        if template is None and config.prompt is None:
            raise ValueError(f"the pairs of {family} need encoding.{'template' if family == 'opaque' else 'prompt'}")
        if config.prompt is not None:
            without_limits(tokenizer)
            self._frame = prompt_frame(tokenizer, config.prompt, None)
        elif template is not None:
            self._frame = template_frame(tokenizer, template)
        self.tokenizer = tokenizer
        """Shared between encoders: opening one takes 10 MB, and 30 ms in which no other Python thread runs."""
        self._config = config
        unknown = (tokenizer.token_to_id(name) for name in UNKNOWN_TOKENS)
        self._unknown = next((number for number in unknown if number is not None), None)
        self._types = np.minimum(np.arange(config.segments, dtype=np.int32), type_vocab_size - 1, dtype=np.int32)
        self._tokens = Tokens(
            tokenizer,
            most=self._budget(self._frame) if config.prompt is None else config.max_length,  # less, in any instruction
            characters=CHARACTERS_PER_TOKEN * config.max_length,
            digest=tokenizer_digest,
        )

    def _budget(self, frame: Frame) -> int:
        """The tokens that a frame leaves to the segments. Raises ValueError where these are too few."""
        left = self._config.max_length - sum(frame.special(self._config.segments))
        if self._config.prompt is not None and left <= self._config.question_length:
            raise InstructionError(
                f"the instruction and the text around it leave {left} of {self._config.max_length} tokens, and a "
                f"question may take {self._config.question_length} of them: shorten the instruction"
            )
        return left

    def _framed(self, instruction: str | None) -> Frame:
        if instruction is None:
            return self._frame
        if self._config.prompt is None:
            raise InstructionError("this model reads no instruction")
        return prompt_frame(self.tokenizer, self._config.prompt, replace_surrogates(instruction))

    def encode(
        self,
        question: str,
        candidates: Sequence[Candidate],
        cache: TokenCache | None = None,
        *,
        partition: str = "",
        windowing: Windowing | None = None,
        most_tokens: int | None = None,
        instruction: str | None = None,
    ) -> EncodedPairs:
        """Encode one question with all its candidates; the question is tokenised once.

        Tokens in the `cache` are used only within a `partition`, so that no time tells what is in another one. Of a
        candidate at most `most_tokens` are read; one that does not fit is cut, or read in windows by `windowing`.
        `instruction` replaces a decoder's own. Raises InstructionError for one that is too long, or that the model
        has no place for.
        """
        frame, rows = self._framed(instruction), len(candidates)
        budget, lead = self._budget(frame), frame.before_candidate
        whole = [frame.question(question), *(lead + each.text for each in candidates)]
        if self._config.segments == 3:
            # Byte-level tokenizers encode a blank as a token, so a missing sentence must not leave a blank.
            whole += [" ".join(filter(None, (each.previous, each.next))) for each in candidates]
        tokens, characters = self._tokens(whole, cache, partition), self._tokens.characters
        segments = [[tokens[0]] * rows, tokens[1 : rows + 1], tokens[rows + 1 :]][: self._config.segments]
        lengths = np.full((rows, len(segments)), len(tokens[0]) // ID_BYTES, dtype=np.int64)
        for index, segment in enumerate(segments[1:], start=1):
            lengths[:, index] = lengths_of(segment) // ID_BYTES
        unread, question_unread = lengths_of(whole[1 : rows + 1]) > characters, len(question) > characters
        most = NO_LIMIT if most_tokens is None else min(most_tokens, NO_LIMIT)
        kept = self._kept(lengths, most, budget)
        if windowing is not None:
            over = kept[:, 1] < np.minimum(lengths[:, 1], most)
            again = unread & ~over & (lengths[:, 1] <= most)
            windows = windowing.most_of_one(rows, int((over & (kept[:, 1] > 0)).sum()))
            long = np.flatnonzero(again | over if windows > 1 else again).tolist()
            room = np.minimum(tokens_of(np.asarray(windows), kept[:, 1]), most) * CHARACTERS_PER_WINDOW_TOKEN
            ends = np.where(over, np.minimum(np.maximum(room, characters), MOST_CHARACTERS), MOST_CHARACTERS)
            texts = [whole[1 + row] for row in long]
            unread[long] = lengths_of(texts) > ends[long]
            if long:
                texts = [text[:end] for text, end in zip(texts, ends[long].tolist(), strict=True)]
                read = dict(zip(long, self._tokens.spanned(texts, cache, partition), strict=True))
                return self._in_windows(
                    frame,
                    read,
                    segments,
                    lengths,
                    unread,
                    question_unread=question_unread,
                    windowing=windowing,
                    most=most,
                )
        shorter = kept < lengths
        for index in np.flatnonzero(shorter.any(axis=0)).tolist():
            ends = (ID_BYTES * kept[:, index]).tolist()
            segments[index] = [ids[:end] for ids, end in zip(segments[index], ends, strict=True)]
        return self._assembled(
            frame,
            segments,
            kept,
            truncated=shorter[:, 1] | unread,
            question_truncated=question_unread or bool(shorter[:, 0].any()),
        )

    def _in_windows(
        self,
        frame: Frame,
        long: Mapping[int, NDArray[np.int32]],
        segments: list[list[bytes]],
        lengths: NDArray[np.int64],
        unread: NDArray[np.bool_],
        *,
        question_unread: bool,
        windowing: Windowing,
        most: int,
    ) -> EncodedPairs:
        """The pairs of candidates; those that are `long` may need several, and have `Tokens.spanned`."""
        for row, read in long.items():
            lengths[row, 1], segments[1][row] = read.shape[1], read[0].tobytes()
        kept = self._kept(lengths, most, self._budget(frame))
        counts, begins, sizes, covered = cut(np.minimum(lengths[:, 1], most), kept[:, 1], windowing)
        truncated = unread | (covered < lengths[:, 1])
        question_truncated = question_unread or bool((kept[:, 0] < lengths[:, 0]).any())
        owner, first = np.repeat(np.arange(len(counts)), counts), np.append(0, np.cumsum(counts))
        spans = np.full((len(owner), 2), NO_SPAN, dtype=np.int64)
        for row in np.flatnonzero(counts > 1).tolist():
            mine = slice(first[row], first[row + 1])
            spans[mine, 0] = long[row][1, begins[mine]]
            spans[mine, 1] = long[row][2, begins[mine] + sizes[mine] - 1]
            spans[mine] = np.maximum(spans[mine] - len(frame.before_candidate), 0)
        by_row, starts = kept[owner], np.zeros((len(owner), len(segments)), dtype=np.int64)
        by_row[:, 1], starts[:, 1] = sizes, begins
        pieces = []
        for index, segment in enumerate(segments):
            slices = (ID_BYTES * np.stack([starts[:, index], starts[:, index] + by_row[:, index]], axis=1)).tolist()
            pieces.append([segment[row][start:end] for row, (start, end) in zip(owner.tolist(), slices, strict=True)])
        pairs = self._assembled(
            frame, pieces, by_row, truncated=truncated[owner], question_truncated=question_truncated
        )
        if len(owner) == len(counts):
            return pairs
        return replace(pairs, windows=Windows(first=first, spans=spans, combine=windowing.combine))

    def _kept(self, lengths: NDArray[np.int64], most: int, budget: int) -> NDArray[np.int64]:
        """The number of tokens of each segment that fit into `budget`, as `lengths`: the tokens that each has, `[n,
        segments]`.

        The candidate, segment 1, keeps `most` at most.
        """
        wanted = lengths.copy()
        wanted[:, 1] = np.minimum(wanted[:, 1], most)
        if self._config.truncation == "longest_first":
            return longest_first(wanted, budget)
        wanted[:, 0] = np.minimum(wanted[:, 0], self._config.question_length)
        left = budget - wanted.cumsum(axis=1) + wanted
        return np.minimum(wanted, np.maximum(left, 0))

    def _assembled(
        self,
        frame: Frame,
        segments: list[list[bytes]],
        lengths: NDArray[np.int64],
        *,
        truncated: NDArray[np.bool_],
        question_truncated: bool,
    ) -> EncodedPairs:
        """The n pairs of the n texts of each segment, whose tokens are `lengths[n, segments]`."""
        rows = len(truncated)
        parts: list[Iterable[bytes]] = [repeat(frame.head), segments[0]]
        for segment in segments[1:]:
            parts += [repeat(frame.join), segment]
        pieces = chain.from_iterable(zip(*parts, repeat(frame.tail, rows), strict=False))
        by_segment = lengths + np.asarray(frame.special(lengths.shape[1]), dtype=np.int64)
        offsets = np.zeros(rows + 1, dtype=np.int64)
        np.cumsum(by_segment.sum(axis=1), out=offsets[1:])
        token_ids = np.frombuffer(bytearray().join(pieces), dtype=np.int32)
        questions, candidates = self._mostly_unknown(frame, token_ids, offsets[:-1], lengths)
        before = (len(frame.head) + len(frame.join)) // ID_BYTES + lengths[:, 0]
        return EncodedPairs(
            token_ids=token_ids,
            type_ids=np.repeat(np.tile(self._types, rows), by_segment.ravel()),
            offsets=offsets,
            truncated=truncated,
            question_truncated=question_truncated,
            unknown=candidates,
            question_unknown=questions is not None and bool(questions[:1].any()),
            prefixes=before if frame.shared else None,
        )

    def _mostly_unknown(
        self, frame: Frame, token_ids: NDArray[np.int32], begins: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
        """True where more than half of the question's tokens are unknown, and of the candidate's, in each pair.

        None for both where no token is unknown. The pairs begin at `begins`; `lengths` are their segments'.
        """
        if self._unknown is None or not (unknown := token_ids == self._unknown).any():
            return None, None
        until = np.append(0, np.cumsum(unknown))
        question = begins + len(frame.head) // ID_BYTES
        candidate = question + lengths[:, 0] + len(frame.join) // ID_BYTES
        first, second = (
            2 * (until[start + lengths[:, segment]] - until[start]) > lengths[:, segment]
            for segment, start in enumerate((question, candidate))
        )
        return first, second


def longest_first(lengths: NDArray[np.int64], room: int) -> NDArray[np.int64]:
    """The number of tokens of each segment `[n, segments]` that are kept when the longest are cut until all fit into
    `room`.

    >>> longest_first(np.asarray([[3, 9, 9], [2, 3, 4], [9, 1, 9]]), 10).tolist()
    [[3, 3, 4], [2, 3, 4], [4, 1, 5]]
    """
    order = np.argsort(lengths, axis=1, kind="stable")
    rows, left, kept = np.arange(len(lengths)), np.full(len(lengths), room, dtype=np.int64), np.empty_like(lengths)
    for place, segment in enumerate(order.T):
        kept[rows, segment] = np.minimum(lengths[rows, segment], left // (lengths.shape[1] - place))
        left -= kept[rows, segment]
    return kept


def lengths_of(items: Sequence[Sized]) -> NDArray[np.int64]:
    """The length of each item, shape [n]."""
    return np.fromiter(map(len, items), dtype=np.int64, count=len(items))
