"""Reading long texts in overlapping windows: where texts are cut, which rows belong to a candidate, its combined score.

The room of a text is the number of its tokens that fit into one pair. A window holds at most that many. A text gets
the fewest windows that cover it with overlaps of at least a quarter of the room. All windows of a text have the same
length, so that the last one is not shorter than the others.

After each stage, the score of a candidate is the highest or the mean score of its windows. A dropped candidate loses
all of its windows, and a survivor keeps all of them. This module works on numbers of tokens and on scores; it needs
neither texts nor a network.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Values = NDArray[np.float64]
Combine = Literal["best", "mean"]
Reading = Literal["best", "mean", "off"]
"""The name of a `Windowing` in requests and options; with `off`, texts that do not fit are cut."""

OVERLAP_SHARE = 4
"""Neighbouring windows overlap by at least the room divided by this number, rounded down."""
MOST_WINDOWS = 64
"""The default limit on the windows of one text. It covers 5,000 words where a pair has 128 tokens."""
MOST_ROWS = 10_000
"""The default limit on the windows of all texts of a question: the service's default limit on candidates."""
NO_LIMIT = 1 << 31
NO_SPAN = -1
"""Both ends of a candidate's span if it was not read in windows, or if none of its windows has a score."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Windowing:
    """The rules for reading texts that do not fit into one pair. Raises ValueError for a limit below 1."""

    combine: Combine | None = None
    """None for the rule of the model that reads the texts (`EncodingConfig.windows`), which may be to cut them."""
    most: int = NO_LIMIT
    """The most windows of one text; the rest of the text is not read."""
    most_rows: int = NO_LIMIT
    """The most windows of all texts together. Texts with the most windows lose the rest, but each text keeps one."""

    def __post_init__(self) -> None:
        """Check the limits."""
        if self.most < 1 or self.most_rows < 1:
            raise ValueError("a text has at least one window")

    def most_of_one(self, texts: int, long: int) -> int:
        """The most windows that one of `texts` texts can have if at least `long` of them do not fit into one window."""
        return 1 if texts + long > self.most_rows else min(self.most, max(1, self.most_rows - texts + 1))

    def of_model(self, reading: Reading) -> Windowing | None:
        """This windowing with the model's own `reading` where it names no rule; None if the model cuts texts."""
        if self.combine is not None:
            return self
        return None if reading == "off" else replace(self, combine=reading)

    def within(self, *, most: int, most_rows: int) -> Windowing:
        """This windowing with its limits lowered to at most the given ones."""
        return replace(self, most=min(self.most, most), most_rows=min(self.most_rows, most_rows))


AS_SERVED = Windowing(most=MOST_WINDOWS, most_rows=MOST_ROWS)
"""The windowing of a service with default settings."""


def windowing_of(reading: Reading | None) -> Windowing | None:
    """The windowing of this name, with the service's default limits. A `reading` of None means the model's own rule;
    the result is None for `off`.

    Raises ValueError for any other name.
    """
    if reading == "off":
        return None
    if reading not in (None, "best", "mean"):
        raise ValueError(f"windows are 'best', 'mean' or 'off', not {reading!r}")
    return replace(AS_SERVED, combine=reading)


class Cut(NamedTuple):
    """The places where n texts are cut into windows."""

    counts: Rows
    """Shape [n]: the number of windows of each text, at least one."""
    begins: Rows
    """Shape [windows]: the first token of each window; the windows of one text follow those of the text before."""
    sizes: Rows
    """Shape [windows]: the number of tokens of each window."""
    read: Rows
    """Shape [n]: the number of tokens, from the beginning of each text, that its windows cover."""


def tokens_covered(counts: Rows, rooms: Rows) -> Rows:
    """The most tokens that `counts` windows cover, by text."""
    overlaps = rooms // OVERLAP_SHARE
    covered: Rows = counts * np.maximum(rooms - overlaps, 1) + overlaps
    return covered


def cut(tokens: Rows, rooms: Rows, windowing: Windowing) -> Cut:
    """Cut texts of `tokens[n]` into windows of at most `rooms[n]`; a text that fits is one window.

    >>> counts, begins, sizes, read = cut(np.asarray([5, 20]), np.asarray([8, 8]), Windowing())
    >>> counts.tolist(), begins.tolist(), sizes.tolist(), read.tolist()
    ([1, 3], [0, 0, 6, 12], [5, 8, 8, 8], [5, 20])
    """
    overlaps = rooms // OVERLAP_SHARE
    strides = np.maximum(rooms - overlaps, 1)
    counts = np.where(rooms > 0, np.maximum(-((overlaps - tokens) // strides), 1), 1)
    counts = _capped(np.minimum(counts, windowing.most), windowing.most_rows)
    read = np.where(counts > 1, np.minimum(tokens, tokens_covered(counts, rooms)), np.minimum(tokens, rooms))
    sizes = -(-(read + (counts - 1) * overlaps) // counts)
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = place * np.repeat(read - sizes, counts) // np.repeat(np.maximum(counts - 1, 1), counts)
    return Cut(counts, begins, np.repeat(sizes, counts), read)


def _capped(counts: Rows, most_rows: int) -> Rows:
    """The counts, capped at the largest number that keeps their sum within `most_rows`, but at least at 1."""
    if not len(counts) or counts.sum() <= most_rows:
        return counts
    sums = range(1, int(counts.max()) + 1)
    cap = bisect_right(sums, most_rows, key=lambda most: int(np.minimum(counts, most).sum()))
    return np.minimum(counts, max(1, cap))


class Folded(NamedTuple):
    """The values of n candidates, combined from those of their windows."""

    scores: Values
    """Shape [n]: the combined score; NaN if no window has a score."""
    stages: Rows
    """Shape [n]: the last stage that has scored a window of each candidate."""
    spans: Rows
    """Shape [n, 2]: the span of the window with the highest score, the earliest of equal ones, or `NO_SPAN`."""
    heads: Values | None
    """Shape [n, k]: the heads' scores of the best window, or their means over the windows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Windows:
    """The assignment of a question's pairs to its candidates, if candidates are read in windows. Immutable."""

    offsets: Rows
    """Shape [n + 1]: the windows of candidate i are the pairs `offsets[i]:offsets[i + 1]`, at least one."""
    spans: Rows
    """Shape [pairs, 2]: the span of each window, in Unicode code points of the candidate's text."""
    combine: Combine

    def __len__(self) -> int:
        """The number of candidates n."""
        return len(self.offsets) - 1

    def starts(self, alive: Rows) -> Rows:
        """The indices in `alive` at which the windows of each alive candidate begin."""
        return np.flatnonzero(np.isin(alive, self.offsets))

    def by_candidate(self, scores: Values) -> Values:
        """The combined score of each candidate, from one stage's scores of all windows."""
        return self.combined(scores, self.offsets[:-1])

    def combined(self, scores: Values, starts: Rows) -> Values:
        """The combined score of each candidate whose windows begin at `starts`, ignoring windows without a score."""
        if self.combine == "best":
            best: Values = np.fmax.reduceat(scores, starts)
            return best
        scored = np.add.reduceat(~np.isnan(scores), starts, dtype=np.int64)
        means = np.full(len(starts), np.nan)
        np.divide(np.add.reduceat(np.nan_to_num(scores), starts), scored, out=means, where=scored > 0)
        return means

    def folded(self, scores: Values, stages: Rows, heads: Values | None) -> Folded:
        """The values of all candidates from the values of all windows; missing scores are NaN."""
        starts, counts = self.offsets[:-1], np.diff(self.offsets)
        highest = np.fmax.reduceat(scores, starts)
        hits = np.where(scores == np.repeat(highest, counts), np.arange(len(scores)), len(scores))
        best = np.minimum.reduceat(hits, starts)
        windowed = (counts > 1) & ~np.isnan(highest)
        spans = np.full((len(self), 2), NO_SPAN, dtype=np.int64)
        spans[windowed] = self.spans[best[windowed]]
        if heads is not None and self.combine == "best":
            heads = np.where(np.isnan(highest)[:, None], np.nan, heads[np.minimum(best, len(scores) - 1)])
        elif heads is not None:
            heads = np.add.reduceat(heads, starts, axis=0) / counts[:, None]
        return Folded(self.combined(scores, starts), np.maximum.reduceat(stages, starts), spans, heads)
