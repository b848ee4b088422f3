"""Turns a question and its candidates into token ids of pairs; `text_encoding.py` encodes texts each alone.

Layout: `[CLS] q [SEP] a [SEP] (c [SEP])` for BERT and ELECTRA, and `<s> q </s></s> a </s> (</s> c </s>)` for RoBERTa.
The context c is the previous and the next sentence (SSP section 3). The pairs of a decoder have a prompt instead of
special tokens (`frame.py`), with an instruction that a request may give. Pairs are packed one after another, without
padding.

Truncation: of a question beyond its limit the end is left (`question_tokens.py`), the candidate is cut at its end, and
the context takes the remaining tokens. With `longest_first`, the longest segments are cut at their ends instead. Texts
are cut to `CHARACTERS_PER_TOKEN * max_length` characters before tokenising, so that a candidate of 100 kB costs no more
than a long sentence. No encoder reads more than `MOST_CHARACTERS`. An empty candidate is an empty segment and is scored
like any other text. Lone surrogates, which UTF-8 cannot hold, become U+FFFD.

With a `Windowing`, a candidate that does not fit is read in several pairs. Each holds one window in place of the cut
text, and the same question and context as the cut pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, repeat
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from cerberank_models.config import EncodingConfig
from cerberank_models.frame import Frame, InstructionError, prompt_frame, template_frame
from cerberank_models.question_tokens import QuestionTokens
from cerberank_models.token_cache import TokenCache
from cerberank_models.tokens import (
    ID_BYTES,
    MOST_CHARACTERS,
    Tokens,
    packed,
    replace_surrogates,
    without_limits,
    word_stems,
)
from cerberank_models.transformer import PAIR_TEMPLATES, Family
from cerberank_models.windows import NO_LIMIT, NO_SPAN, Windowing, Windows, cut, tokens_covered

CHARACTERS_PER_TOKEN = 32
"""The assumed most characters per token. English has about 4.5; only runs of blanks and long words exceed the bound."""
UNKNOWN_TOKENS = ("[UNK]", "<unk>")
"""The names of the token for unknown text. Byte-level tokenizers have one too, but never emit it."""
CHARACTERS_PER_WINDOW_TOKEN = 8
"""The assumed most characters per token when a text is tokenised again for windows. It is lower than
`CHARACTERS_PER_TOKEN`, because tokenising 65,536 characters takes up to 0.1 s."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A candidate sentence with its context. An empty `previous` or `next` means that there is no such sentence."""

    text: str
    previous: str = ""
    next: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedPairs:
    """n encoded pairs, packed: the tokens of pair i are `offsets[i]:offsets[i + 1]`."""

    token_ids: NDArray[np.int32]
    type_ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    truncated: NDArray[np.bool_]
    """Shape [n]: True if the end of the pair's candidate is read neither in this pair nor in its other pairs."""
    windows: Windows | None = None
    """The assignment of pairs to candidates; None if every candidate is one pair."""
    question_truncated: bool = False
    """True if a part of the question is missing from some pair."""
    unknown: NDArray[np.bool_] | None = None
    """Shape [n]: True if the vocabulary lacks most of the candidate's tokens in the pair; None if it lacks no token."""
    question_unknown: bool = False
    """True if the vocabulary lacks most of the question's tokens."""
    prefixes: NDArray[np.int64] | None = None
    """Shape [n]: the number of tokens at the beginning of each pair that other pairs of its question share, so that a
    decoder can compute them once; None for encoders.
    """
    begins: NDArray[np.int64] | None = None
    """Shape [n]: the place of the candidate's first token in each pair; None for pairs that were selected or joined."""
    question_ids: NDArray[np.int32] | None = None
    """The ids of the question's own known tokens; None for pairs that were selected or joined."""

    def __len__(self) -> int:
        """The number of pairs n."""
        return len(self.truncated)

    @property
    def candidates(self) -> int:
        """The number of candidates."""
        return len(self) if self.windows is None else len(self.windows)

    @property
    def truncated_candidates(self) -> NDArray[np.bool_]:
        """`truncated` for each candidate instead of each pair."""
        return self.truncated if self.windows is None else self.truncated[self.windows.offsets[:-1]]

    @property
    def unknown_candidates(self) -> NDArray[np.bool_]:
        """True for each candidate if `unknown` is True for all of its pairs."""
        if self.unknown is None:
            return np.zeros(self.candidates, np.bool_)
        if self.windows is None:
            return self.unknown
        return np.logical_and.reduceat(self.unknown, self.windows.offsets[:-1])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each pair, shape [n]."""
        return np.diff(self.offsets)

    @property
    def tokens(self) -> int:
        """Tokens of all pairs together."""
        return int(self.offsets[-1])

    def of_candidates(self, kept: NDArray[np.int64]) -> EncodedPairs:
        """The pairs of the candidates `kept`, ascending, with all their windows."""
        if self.windows is None:
            rows, windows = kept, None
        else:
            rows, offsets = packed_rows(self.windows.offsets, kept)
            windows = replace(self.windows, offsets=offsets, spans=self.windows.spans[rows])
        unknown = None if self.unknown is None else self.unknown[rows]
        return replace(self.select(rows), windows=windows, unknown=unknown, question_unknown=self.question_unknown)

    def select(self, rows: NDArray[np.integer]) -> EncodedPairs:
        """The pairs `rows`, in that order, each counted as one candidate."""
        index, offsets = packed_rows(self.offsets, rows)
        return EncodedPairs(
            token_ids=self.token_ids[index],
            type_ids=self.type_ids[index],
            offsets=offsets,
            truncated=self.truncated[rows],
            question_truncated=self.question_truncated,
            prefixes=None if self.prefixes is None else self.prefixes[rows],
        )


NO_PAIRS = EncodedPairs(
    token_ids=np.empty(0, np.int32),
    type_ids=np.empty(0, np.int32),
    offsets=np.zeros(1, np.int64),
    truncated=np.empty(0, np.bool_),
)


def offsets_of(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """The offsets `[n + 1]` of n packed sequences with these lengths."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def packed_rows(offsets: NDArray[np.int64], rows: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The token indices of the packed sequences `rows`, and the offsets of the sequences after gathering."""
    lengths = np.diff(offsets)[rows]
    gathered = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lengths, out=gathered[1:])
    shift = np.repeat(offsets[:-1][rows] - gathered[:-1], lengths)
    return np.arange(gathered[-1], dtype=np.int64) + shift, gathered


def concat_pairs(parts: Sequence[EncodedPairs]) -> EncodedPairs:
    """All pairs of `parts`, in order, each counted as one candidate."""
    if not parts:
        raise ValueError("nothing to concatenate")
    lengths = np.concatenate([part.lengths for part in parts])
    prefixes = [part.prefixes for part in parts if part.prefixes is not None]
    return EncodedPairs(
        token_ids=np.concatenate([part.token_ids for part in parts]),
        type_ids=np.concatenate([part.type_ids for part in parts]),
        offsets=offsets_of(lengths),
        truncated=np.concatenate([part.truncated for part in parts]),
        prefixes=np.concatenate(prefixes) if len(prefixes) == len(parts) else None,
    )


class PairEncoder:
    """Encodes pairs. Threads may share an instance, because encoding changes neither the encoder nor its tokenizer."""

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

        A decoder uses the `config`'s prompt; other networks use the `config`'s special tokens, or else the family's.
        `tokenizer_digest` is the hash of the tokenizer's file (`Tokens`). Raises ValueError if the special tokens are
        not known or missing from the vocabulary, or if the prompt leaves no room for texts.
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
        """Shared between encoders, because opening a tokenizer takes 10 MB, and blocks other threads for 30 ms."""
        self._config = config
        unknown = (tokenizer.token_to_id(name) for name in UNKNOWN_TOKENS)
        self._unknown = next((number for number in unknown if number is not None), None)
        self._types = np.minimum(np.arange(config.segments, dtype=np.int32), type_vocab_size - 1, dtype=np.int32)
        # The room in a decoder's prompt depends on the instruction; `max_length` is its upper bound.
        most = self._budget(self._frame) if config.prompt is None else config.max_length
        characters = CHARACTERS_PER_TOKEN * config.max_length
        self._tokens = Tokens(tokenizer, most=most, characters=characters, digest=tokenizer_digest)
        self._questions = QuestionTokens(
            tokenizer,
            limit=config.question_length if config.question_part == "end" else most + 1,
            part=config.question_part,
            characters=characters,
            digest=tokenizer_digest,
        )

    @cached_property
    def stems(self) -> NDArray[np.int32]:
        """The words of the tokenizer (`tokens.word_stems`), which are read when they are first needed."""
        return word_stems(self.tokenizer)

    def _budget(self, frame: Frame) -> int:
        """The number of tokens that a frame leaves to the segments. Raises InstructionError if they are too few."""
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

        At most `most_tokens` of a candidate are read. A candidate that does not fit is read in windows by `windowing`,
        which leaves the rule to the model if it names none, or cut if that is None. `instruction` replaces the default
        instruction of a decoder. Cached tokens are used only within their `partition`, so that response times do not
        reveal the texts of another.

        Raises InstructionError for an instruction that is too long, or that the model does not take.
        """
        # The texts of all segments: the question, the candidates, and their contexts if the network reads them.
        frame, rows = self._framed(instruction), len(candidates)
        budget, lead = self._budget(frame), frame.before_candidate
        texts = [lead + each.text for each in candidates]
        if self._config.segments == 3:
            # Byte-level tokenizers encode a blank as a token, so a missing sentence must not leave a blank.
            texts += [" ".join(filter(None, (each.previous, each.next))) for each in candidates]
        # Their tokens, and how many of these fit into a pair.
        (asked,), (question_unread,) = self._questions([question], cache, partition, frame)
        tokens, characters = self._tokens(texts, cache, partition), self._tokens.characters
        segments = [[asked] * rows, tokens[:rows], tokens[rows:]][: self._config.segments]
        lengths = np.full((rows, len(segments)), len(asked) // ID_BYTES, dtype=np.int64)
        for index, segment in enumerate(segments[1:], start=1):
            lengths[:, index] = lengths_of(segment) // ID_BYTES
        unread = lengths_of(texts[:rows]) > characters
        most = NO_LIMIT if most_tokens is None else min(most_tokens, NO_LIMIT)
        fitting = self._fitting(lengths, most, budget)
        windowing = windowing and windowing.of_model(self._config.windows)
        if windowing is not None:
            # `over`: candidates with more tokens than fit; `again`: those whose text was cut before it was tokenised.
            over = fitting[:, 1] < np.minimum(lengths[:, 1], most)
            again = unread & ~over & (lengths[:, 1] <= most)
            most_windows = windowing.most_of_one(rows, int((over & (fitting[:, 1] > 0)).sum()))
            long = np.flatnonzero(again | over if most_windows > 1 else again).tolist()
            covered = tokens_covered(np.asarray(most_windows), fitting[:, 1])
            room = np.minimum(covered, most) * CHARACTERS_PER_WINDOW_TOKEN
            ends = np.where(over, np.minimum(np.maximum(room, characters), MOST_CHARACTERS), MOST_CHARACTERS)
            # No more of a text is tokenised again than its windows can hold.
            long_texts = [texts[row] for row in long]
            unread[long] = lengths_of(long_texts) > ends[long]
            if long:
                long_texts = [text[:end] for text, end in zip(long_texts, ends[long].tolist(), strict=True)]
                spanned = dict(zip(long, self._tokens.spanned(long_texts, cache, partition), strict=True))
                return self._in_windows(
                    frame,
                    spanned,
                    segments,
                    lengths,
                    unread,
                    question_unread=bool(question_unread),
                    windowing=windowing,
                    most=most,
                )
        # Without windows the ends of segments are cut.
        shorter = fitting < lengths
        for index in np.flatnonzero(shorter.any(axis=0)).tolist():
            ends = (ID_BYTES * fitting[:, index]).tolist()
            segments[index] = [ids[:end] for ids, end in zip(segments[index], ends, strict=True)]
        return self._assembled(
            frame,
            segments,
            fitting,
            truncated=shorter[:, 1] | unread,
            question_truncated=bool(question_unread or shorter[:, 0].any()),
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
        """The pairs of all candidates; `long` holds `Tokens.spanned` for each row that may need several windows."""
        # The long candidates take the place of their cut texts.
        for row, read in long.items():
            lengths[row, 1], segments[1][row] = read.shape[1], read[0].tobytes()
        fitting = self._fitting(lengths, most, self._budget(frame))
        counts, begins, sizes, covered = cut(np.minimum(lengths[:, 1], most), fitting[:, 1], windowing)
        truncated = unread | (covered < lengths[:, 1])
        question_truncated = question_unread or bool((fitting[:, 0] < lengths[:, 0]).any())
        # `owner` is the candidate of each window, `spans` its place in the candidate's text.
        owner = np.repeat(np.arange(len(counts)), counts)
        offsets = np.append(0, np.cumsum(counts))
        spans = np.full((len(owner), 2), NO_SPAN, dtype=np.int64)
        for row in np.flatnonzero(counts > 1).tolist():
            of_row = slice(offsets[row], offsets[row + 1])
            spans[of_row, 0] = long[row][1, begins[of_row]]
            spans[of_row, 1] = long[row][2, begins[of_row] + sizes[of_row] - 1]
            spans[of_row] = np.maximum(spans[of_row] - len(frame.before_candidate), 0)
        # Each window becomes a pair with the question and the context of its candidate.
        by_row, starts = fitting[owner], np.zeros((len(owner), len(segments)), dtype=np.int64)
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
        assert windowing.combine is not None, "`of_model` names a rule"
        return replace(pairs, windows=Windows(offsets=offsets, spans=spans, combine=windowing.combine))

    def _fitting(self, lengths: NDArray[np.int64], most: int, budget: int) -> NDArray[np.int64]:
        """The number of tokens of each segment that fit into `budget`, shape [n, segments] like `lengths`.

        `lengths` are the tokens that each segment has. The candidate, segment 1, keeps at most `most`.
        """
        wanted = lengths.copy()
        wanted[:, 1] = np.minimum(wanted[:, 1], most)
        if self._config.truncation == "longest_first":
            return longest_first(wanted, budget)
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
        """The n pairs from the n texts of each segment, which have `lengths[n, segments]` tokens."""
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
        begins = (len(frame.head) + len(frame.join)) // ID_BYTES + lengths[:, 0]
        question = np.frombuffer(max(segments[0], key=len, default=b""), dtype=np.int32)
        return EncodedPairs(
            token_ids=token_ids,
            type_ids=np.repeat(np.tile(self._types, rows), by_segment.ravel()),
            offsets=offsets,
            truncated=truncated,
            question_truncated=question_truncated and rows > 0,
            unknown=candidates,
            question_unknown=questions is not None and bool(questions[:1].any()),
            prefixes=begins if frame.shared else None,
            begins=begins,
            question_ids=question[~np.isin(question, self._wordless(frame))],
        )

    def _wordless(self, frame: Frame) -> NDArray[np.int32]:
        """The ids of a question's tokens that do not count as its words: unknown text, and those of a prompt."""
        unknown = packed([] if self._unknown is None else [self._unknown])
        return np.frombuffer(unknown + frame.ids_around_question, dtype=np.int32)

    def _mostly_unknown(
        self, frame: Frame, token_ids: NDArray[np.int32], begins: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
        """True for each pair in which more than half of the question's tokens are unknown; the same for candidates.

        Both are None if no token is unknown. The pairs begin at `begins`, and their segments have `lengths` tokens.
        """
        if self._unknown is None or not (unknown := token_ids == self._unknown).any():
            return None, None
        unknown_before = np.append(0, np.cumsum(unknown))
        question = begins + len(frame.head) // ID_BYTES
        candidate = question + lengths[:, 0] + len(frame.join) // ID_BYTES
        first, second = (
            2 * (unknown_before[start + lengths[:, segment]] - unknown_before[start]) > lengths[:, segment]
            for segment, start in enumerate((question, candidate))
        )
        return first, second


def longest_first(lengths: NDArray[np.int64], room: int) -> NDArray[np.int64]:
    """The number of tokens to keep of each segment, `[n, segments]`: the longest are cut until all fit into `room`.

    >>> longest_first(np.asarray([[3, 9, 9], [2, 3, 4], [9, 1, 9]]), 10).tolist()
    [[3, 3, 4], [2, 3, 4], [4, 1, 5]]
    """
    order = np.argsort(lengths, axis=1, kind="stable")
    rows, left, fitting = np.arange(len(lengths)), np.full(len(lengths), room, dtype=np.int64), np.empty_like(lengths)
    for place, segment in enumerate(order.T):
        fitting[rows, segment] = np.minimum(lengths[rows, segment], left // (lengths.shape[1] - place))
        left -= fitting[rows, segment]
    return fitting


def lengths_of(items: Sequence[Sized]) -> NDArray[np.int64]:
    """The length of each item, shape [n]."""
    return np.fromiter(map(len, items), dtype=np.int64, count=len(items))
