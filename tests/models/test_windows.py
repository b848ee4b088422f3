from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_models.windows import NO_LIMIT, NO_SPAN, OVERLAP_SHARE, Combine, Windowing, Windows, cut

TEXTS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 40)), min_size=1, max_size=6)
SCORES = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, np.nan])


@given(texts=TEXTS, most=st.integers(1, 12) | st.just(NO_LIMIT), rows=st.integers(1, 60) | st.just(NO_LIMIT))
def test_windows_cover_what_is_read_and_overlap(texts: list[tuple[int, int]], most: int, rows: int) -> None:
    """Every token that is read is in a window; neighbours share a quarter of the room; the limits hold."""
    tokens, rooms = (np.asarray(column) for column in zip(*texts, strict=True))
    counts, begins, sizes, read = cut(tokens, rooms, Windowing(most=most, most_rows=rows))
    assert counts.min() >= 1
    assert counts.max() <= most
    assert counts.sum() <= max(rows, len(texts))
    first = np.append(0, np.cumsum(counts))
    for text, room in enumerate(rooms.tolist()):
        mine = slice(first[text], first[text + 1])
        ends = begins[mine] + sizes[mine]
        covered = {token for start, end in zip(begins[mine], ends, strict=True) for token in range(start, end)}
        assert covered == set(range(read[text]))
        assert sizes[mine].max() <= room
        assert sizes[mine].max() == sizes[mine].min()
        if counts[text] > 1:
            assert (ends[:-1] - begins[mine][1:]).min() >= room // OVERLAP_SHARE
        if tokens[text] <= room:
            assert (counts[text], read[text]) == (1, tokens[text])
        elif room and most == rows == NO_LIMIT:
            assert read[text] == tokens[text]
            stride = room - room // OVERLAP_SHARE
            assert (counts[text] - 1) * stride + room // OVERLAP_SHARE < tokens[text]  # one fewer would not do


def test_a_shared_limit_takes_windows_from_the_longest_texts() -> None:
    """The short text keeps both of its windows, and no text is left without one."""
    tokens, rooms = np.asarray([100, 12, 60]), np.asarray([8, 8, 8])
    assert cut(tokens, rooms, Windowing(most_rows=12)).counts.tolist() == [5, 2, 5]
    assert cut(tokens, rooms, Windowing(most_rows=1)).counts.tolist() == [1, 1, 1]


def test_a_limit_below_one_is_refused() -> None:
    """A text without a window would have no score."""
    with pytest.raises(ValueError, match="at least one window"):
        Windowing(most=0)


@given(
    groups=st.lists(st.lists(SCORES, min_size=1, max_size=4), min_size=1, max_size=5),
    combine=st.sampled_from(["best", "mean"]),
)
def test_scores_are_folded_as_a_loop_does(groups: list[list[float]], combine: Combine) -> None:
    """By the windows that have a score; the best one's span and heads are told."""
    first = np.append(0, np.cumsum([len(group) for group in groups]))
    count = int(first[-1])
    spans = np.stack([np.arange(count), np.arange(count) + 1], axis=1)
    scores = np.asarray([score for group in groups for score in group])
    stages = np.where(np.isnan(scores), -1, 0)
    got = Windows(offsets=first, spans=spans, combine=combine).folded(scores, stages, scores[:, None] / 2)
    assert got.heads is not None
    for candidate, group in enumerate(groups):
        known = [score for score in group if not np.isnan(score)]
        if not known:
            assert np.isnan(got.scores[candidate])
            assert np.isnan(got.heads[candidate]).all()
            assert (got.stages[candidate], got.spans[candidate].tolist()) == (-1, [NO_SPAN, NO_SPAN])
            continue
        wanted = max(known) if combine == "best" else sum(known) / len(known)
        assert got.scores[candidate] == pytest.approx(wanted)
        assert got.stages[candidate] == 0
        best = int(first[candidate]) + group.index(max(known))
        assert got.spans[candidate].tolist() == ([best, best + 1] if len(group) > 1 else [NO_SPAN, NO_SPAN])
        if len(known) == len(group):
            assert got.heads[candidate, 0] == pytest.approx(wanted / 2)


def test_only_whole_candidates_are_alive() -> None:
    """The beginnings of the windows of candidates 0 and 2, once candidate 1 was dropped."""
    windows = Windows(offsets=np.asarray([0, 2, 3, 6]), spans=np.zeros((6, 2), np.int64), combine="best")
    alive = np.asarray([0, 1, 3, 4, 5])
    assert windows.starts(alive).tolist() == [0, 2]
    assert windows.combined(np.asarray([0.1, 0.3, 0.2, 0.9, 0.4]), windows.starts(alive)).tolist() == [0.3, 0.9]
