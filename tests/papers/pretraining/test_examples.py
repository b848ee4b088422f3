"""The sampling rules of SSP on random documents, each as the paper states it."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.papers.pretraining.documents import documents, groups_of, sentence

from cerberank_papers.pretraining.documents import Document
from cerberank_papers.pretraining.examples import Example
from cerberank_papers.pretraining.spans import CONTEXTS

PER_DOCUMENT = st.lists(st.integers(1, 6), min_size=1, max_size=5)
SHAPES = st.lists(PER_DOCUMENT, min_size=0, max_size=4).map(lambda drawn: [[2, 5, 4], *drawn, [1, 6]])
"""Any documents, and two that can give every kind of example."""

Place = tuple[int, int, int, int]
"""Document, paragraph, first sentence, and the one after the last."""


def place_of(text: str, found: list[Document]) -> Place:
    """The place of a text of contiguous sentences; sentences differ, so there is one such place."""
    places = [
        (number, index, start, stop)
        for number, document in enumerate(found)
        for index, paragraph in enumerate(document.paragraphs)
        for start in range(len(paragraph))
        for stop in range(start + 1, len(paragraph) + 1)
        if " ".join(paragraph[start:stop]) == text
    ]
    assert len(places) == 1
    return places[0]


def expected_contexts(name: str, found: list[Document], a: Place, b: Place) -> set[str]:
    """The contexts that b may have, written down from the paper's definitions; DPC's leaves one sentence out."""
    number, index, start, stop = b
    paragraph = found[number].paragraphs[index]
    if name == "sdc":
        return {" ".join(found[number].paragraphs[0])}
    if name == "dpc":
        left = [place for place in range(len(paragraph)) if not start <= place < stop]
        hidden = [a[2]] if (number, index) == a[:2] else left
        return {" ".join(paragraph[place] for place in left if place != out) for out in hidden}
    return {" ".join(paragraph[place] for place in (start - 1, stop) if 0 <= place < len(paragraph))}


@settings(max_examples=40, deadline=None)
@given(shape=SHAPES, name=st.sampled_from(CONTEXTS), index=st.integers(0, 10_000), seed=st.integers(0, 3))
def test_every_example_keeps_the_papers_rules(shape: list[list[int]], name: str, index: int, seed: int) -> None:
    """One sentence and one to three others, disjoint; kinds by b's place; b's own context, never with a in it."""
    found = documents(shape)
    group = groups_of(found, name, seed=seed).group(index)
    kinds = Counter(example.kind for example in group)
    a = place_of(group[0].a, found)
    usable = range(1 if name == "sdc" else 0, len(shape[a[0]]))
    shortest = 2 if name == "sdc" else 3
    others = [place for place in usable if place != a[1] and shape[a[0]][place] >= shortest]
    assert len(group) == 5  # SSP appendix A.1: four negatives
    assert (kinds["positive"], kinds["hard"], kinds["easy"]) == (1, hard := min(2, len(others)), 4 - hard)
    assert a[3] - a[2] == 1
    for example in group:
        b = place_of(example.b.text, found)
        assert example.a == group[0].a
        assert example.label == (b[:2] == a[:2])
        assert {"positive": b[:2] == a[:2], "hard": b[0] == a[0] and b[1] != a[1], "easy": b[0] != a[0]}[example.kind]
        assert 1 <= b[3] - b[2] <= 3
        assert a[:2] != b[:2] or not b[2] <= a[2] < b[3]
        context = " ".join(filter(None, (example.b.previous, example.b.next)))
        assert context in expected_contexts(name, found, a, b)
        assert context
        assert group[0].a not in context
        if name == "sdc":
            assert a[1] > 0
            assert b[1] > 0
    away = {place_of(example.b.text, found)[1] for example in group if example.kind == "hard"}
    assert len(away) == hard


@settings(max_examples=20, deadline=None)
@given(indices=st.lists(st.integers(0, 500), min_size=1, max_size=8), name=st.sampled_from([*CONTEXTS, "all"]))
def test_a_group_follows_from_seed_and_number_alone(indices: list[int], name: str) -> None:
    """Whatever was asked before, and by whom; another seed gives other groups."""
    found = documents([[3, 4, 5], [4, 4], [2, 5]])
    one, other = groups_of(found, name, seed=1), groups_of(found, name, seed=1)
    drawn = {index: one.group(index) for index in indices}
    assert all(other.group(index) == drawn[index] for index in reversed(indices))
    assert [groups_of(found, name, seed=2).group(index) for index in range(20)] != [
        one.group(index) for index in range(20)
    ]


@pytest.mark.parametrize("name", CONTEXTS)
def test_lengths_do_not_tell_the_answer(name: str) -> None:
    """Sentences in b, and in b and its context, are as many on average in each kind, within four standard errors."""
    draw = random.Random(0)
    shapes = [[draw.choice((3, 3, 4, 6, 9, 14)) for _ in range(draw.randint(3, 6))] for _ in range(20)]
    groups = groups_of(documents([*shapes, *([[1, 2, 2, 1]] * 5)]), name, seed=1)
    lengths: dict[str, list[tuple[int, int]]] = {"positive": [], "hard": [], "easy": []}
    for index in range(1500):
        for example in groups.group(index):
            counts = [text.count(".") for text in (example.b.text, example.b.previous, example.b.next)]
            lengths[example.kind].append((counts[0], sum(counts)))
    positive = np.asarray(lengths["positive"])
    for kind in ("hard", "easy"):
        negative = np.asarray(lengths[kind])
        error = np.sqrt(positive.var(axis=0) / len(positive) + negative.var(axis=0) / len(negative))
        assert (np.abs(positive.mean(axis=0) - negative.mean(axis=0)) < 4 * error).all(), (name, kind)


def test_whole_negatives_of_dpc_have_all_that_is_left_of_their_paragraph() -> None:
    """SSP section 4: c is P without b. Other negatives lack a drawn sentence in each example."""
    found = documents([[2, 5, 4], [4, 4], [3, 5]])
    shares = []
    for whole in (True, False):
        groups = groups_of(found, "dpc", seed=1, whole_negatives=whole)
        negatives = [example for index in range(60) for example in groups.group(index) if not example.label]
        left = 0
        for example in negatives:
            number, index, start, stop = place_of(example.b.text, found)
            sentences = found[number].paragraphs[index]
            rest = " ".join(sentence for place, sentence in enumerate(sentences) if not start <= place < stop)
            left += rest == " ".join(filter(None, (example.b.previous, example.b.next)))
        shares.append(left / len(negatives))
    assert shares == [1.0, 0.0]


def test_all_takes_the_three_contexts_in_turn() -> None:
    """Group i of `all` has the context of objective i modulo three."""
    found = documents([[3, 4, 5], [4, 4], [2, 5]])
    groups = groups_of(found, "all", seed=1)
    for index in range(12):
        name = CONTEXTS[index % 3]
        for example in groups.group(index):
            a, b = place_of(example.a, found), place_of(example.b.text, found)
            context = " ".join(filter(None, (example.b.previous, example.b.next)))
            assert context in expected_contexts(name, found, a, b)


def test_an_epoch_visits_every_paragraph_once() -> None:
    """As many groups as there are paragraphs that can give a positive: each gives one."""
    found = documents([[2, 3, 4, 5], [3, 3, 3]])
    groups = groups_of(found, "dpc", seed=3)
    visited = [place_of(groups.group(index)[0].a, found)[:2] for index in range(6)]
    assert sorted(visited) == [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_repeated_sentence_counts_as_a(name: str) -> None:
    """If a's words stand twice in its document, neither b nor a context within the paragraph holds them."""
    again = sentence(0, 1, 0)
    first, *rest = documents([[2, 5, 4, 4], [3, 5, 5]])
    twice = tuple((*paragraph, again) for paragraph in first.paragraphs)
    groups = groups_of([Document(paragraphs=twice), *rest], name, seed=1)
    seen: list[Example] = [example for index in range(200) for example in groups.group(index)]
    repeated = [example for example in seen if example.a == again]
    assert repeated
    for example in repeated:
        assert again not in example.b.text
        assert name == "sdc" or again not in example.b.previous + example.b.next


def test_a_document_that_holds_nearly_everything_has_easy_negatives() -> None:
    """The other document's one paragraph gives them all, however rarely a draw from all paragraphs would meet it."""
    big = [[f"sentence {number} of paragraph {place} is here ." for number in range(3)] for place in range(5000)]
    found = [Document(paragraphs=tuple(map(tuple, big))), *documents([[3]])]
    groups = groups_of(found, "dslc", seed=1)
    for index in range(50):
        group = groups.group(index)
        small = found[1].paragraphs[0]
        away = [example.b.text in " ".join(small) for example in group if example.kind == "easy"]
        assert away
        assert all(inside != (group[0].a in small) for inside in away)


@pytest.mark.parametrize("shape", [[[3, 4, 5]], [[1], [1]], []])
@pytest.mark.parametrize("name", CONTEXTS)
def test_too_few_documents_are_refused(shape: list[list[int]], name: str) -> None:
    """One document gives no easy negative, single sentences no positive; the error counts them."""
    with pytest.raises(ValueError, match=f"{name} needs paragraphs .* of {len(shape)} long enough"):
        groups_of(documents(shape), name, seed=1)
