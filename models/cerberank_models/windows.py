"""Long texts in overlapping windows: where they are cut, which rows are one candidate's, and how its scores are folded.

A window holds at most as many tokens as the pair would hold of the text if it were cut, its room. There are as few
windows of a text as cover all of its tokens with overlaps of at least a quarter of the room, and they are equally
long, so that the last one is not a remnant. After each stage a candidate's score is the best of its windows' or their
mean; a dropped candidate loses all of its windows, a survivor keeps all. Numbers alone: no text or network is known.
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
"""The name of a `Windowing` in requests and options: `off` cuts texts that do not fit."""

OVERLAP_SHARE = 4
"""Neighbouring windows share at least the room divided by this, rounded down."""
MOST_WINDOWS = 64
"""Windows of one text unless somebody says otherwise: 5,000 words of one where 128 tokens are read."""
MOST_ROWS = 10_000
"""Windows of all texts of a question, as many as the candidates that a service takes by default."""
NO_LIMIT = 1 << 31
NO_SPAN = -1
"""Both ends of the span of a candidate that was not read in windows, or of whose windows none has a score."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Windowing:
    """The way to read the texts of one question that do not fit. Raises ValueError for a limit below 1."""

    combine: Combine = "best"
    most: int = NO_LIMIT
    """Windows of one text; what lies behind them is not read."""
    most_rows: int = NO_LIMIT
    """Windows of all texts together; the texts with most windows lose some, but none its first."""

    def __post_init__(self) -> None:
        """Check the limits."""
        if self.most < 1 or self.most_rows < 1:
            raise ValueError("a text has at least one window")

    def most_of_one(self, texts: int, long: int) -> int:
        """The most windows of one text among so many, where at least `long` texts do not fit into one window."""
        return 1 if texts + long > self.most_rows else min(self.most, max(1, self.most_rows - texts + 1))

    def within(self, *, most: int, most_rows: int) -> Windowing:
        """The same within further limits."""
        return replace(self, most=min(self.most, most), most_rows=min(self.most_rows, most_rows))


AS_SERVED = Windowing(most=MOST_WINDOWS, most_rows=MOST_ROWS)
"""The reading of texts that do not fit by a service with default settings."""


def windowing_of(reading: Reading | None) -> Windowing | None:
    """The windowing of this name with the service's default limits; None for `off`. None means `best`.

    Raises ValueError for another name.
    """
    if reading == "off":
        return None
    if reading not in (None, "best", "mean"):
        raise ValueError(f"windows are 'best', 'mean' or 'off', not {reading!r}")
    return replace(AS_SERVED, combine=reading or "best")


class Cut(NamedTuple):
    """The places where n texts are cut into windows."""

    counts: Rows
    """Windows of each text, shape [n], at least one."""
    begins: Rows
    """First token of each window, one text's windows after another's."""
    sizes: Rows
    """Tokens of each window."""
    read: Rows
    """Tokens of each text that its windows cover, from its beginning, shape [n]."""


def tokens_of(counts: Rows, rooms: Rows) -> Rows:
    """The tokens that so many windows cover at most."""
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
    read = np.where(counts > 1, np.minimum(tokens, tokens_of(counts, rooms)), np.minimum(tokens, rooms))
    sizes = -(-(read + (counts - 1) * overlaps) // counts)
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = place * np.repeat(read - sizes, counts) // np.repeat(np.maximum(counts - 1, 1), counts)
    return Cut(counts, begins, np.repeat(sizes, counts), read)


def _capped(counts: Rows, most_rows: int) -> Rows:
    """The counts, capped by the largest number with which their sum is at most `most_rows`, or by 1."""
    if not len(counts) or counts.sum() <= most_rows:
        return counts
    sums = range(1, int(counts.max()) + 1)
    cap = bisect_right(sums, most_rows, key=lambda most: int(np.minimum(counts, most).sum()))
    return np.minimum(counts, max(1, cap))


class Folded(NamedTuple):
    """Values of n candidates."""

    scores: Values
    """Shape [n]; NaN where no window has a score."""
    stages: Rows
    """Shape [n]: the last stage that has scored a window of each."""
    spans: Rows
    """Shape [n, 2]: the window with the highest score, the earlier of equal ones, as a span of its text; `NO_SPAN`."""
    heads: Values | None
    """Shape [n, k]: those of the best window, or the windows' means."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Windows:
    """The pairs of a question that are windows of one candidate. Immutable."""

    first: Rows
    """Shape [n + 1]: candidate i owns the pairs `first[i]:first[i + 1]`, at least one."""
    spans: Rows
    """Shape [pairs, 2]: the span of each window, in Unicode code points of the candidate's text."""
    combine: Combine

    def __len__(self) -> int:
        """The number of candidates n."""
        return len(self.first) - 1

    def starts(self, alive: Rows) -> Rows:
        """The places in `alive` where a candidate's windows begin; a candidate is alive with all or with none."""
        return np.flatnonzero(np.isin(alive, self.first))

    def by_candidate(self, scores: Values) -> Values:
        """The score of each candidate at one stage from those of all windows."""
        return self.combined(scores, self.first[:-1])

    def combined(self, scores: Values, starts: Rows) -> Values:
        """The score of each candidate whose windows begin at `starts`, by those of its windows that have one."""
        if self.combine == "best":
            best: Values = np.fmax.reduceat(scores, starts)
            return best
        known = np.add.reduceat(~np.isnan(scores), starts, dtype=np.int64)
        means = np.full(len(starts), np.nan)
        np.divide(np.add.reduceat(np.nan_to_num(scores), starts), known, out=means, where=known > 0)
        return means

    def folded(self, scores: Values, stages: Rows, heads: Values | None) -> Folded:
        """The values of all candidates from those of all their windows; scores are NaN where there is none."""
        starts, counts = self.first[:-1], np.diff(self.first)
        highest = np.fmax.reduceat(scores, starts)
        hits = np.where(scores == np.repeat(highest, counts), np.arange(len(scores)), len(scores))
        best = np.minimum.reduceat(hits, starts)
        told = (counts > 1) & ~np.isnan(highest)
        spans = np.full((len(self), 2), NO_SPAN, dtype=np.int64)
        spans[told] = self.spans[best[told]]
        if heads is not None and self.combine == "best":
            heads = np.where(np.isnan(highest)[:, None], np.nan, heads[np.minimum(best, len(scores) - 1)])
        elif heads is not None:
            heads = np.add.reduceat(heads, starts, axis=0) / counts[:, None]
        return Folded(self.combined(scores, starts), np.maximum.reduceat(stages, starts), spans, heads)
