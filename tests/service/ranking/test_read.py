from __future__ import annotations

import json
import pickle

import pytest

from cerberank_models.encoding import MOST_CHARACTERS, readable
from cerberank_service.call import RankCall
from cerberank_service.dialects import DIALECTS
from cerberank_service.dialects.shared_paths import by_path
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.ranking.read import Read, Reader

SHARED = [dialects for dialects in by_path(DIALECTS).values() if len(dialects) > 1]
READING = Reader(by_path(DIALECTS)["/v1/rank"], 3)


def body(*candidates: object, **fields: object) -> bytes:
    return json.dumps({"question": "q", "candidates": candidates, **fields}).encode()


def refused(content: bytes) -> ServiceError:
    made = READING(content).outcome
    assert isinstance(made, ServiceError)
    return made


def test_too_many_candidates_are_refused_with_the_limit() -> None:
    """The limit itself is accepted, and one candidate more is refused."""
    made = READING(body("a", "b", "c")).outcome
    assert isinstance(made, tuple)
    call = made[0]
    assert isinstance(call, RankCall)
    assert [candidate.text for candidate in call.candidates] == ["a", "b", "c"]
    error = refused(body("a", "a", "a", "a"))
    assert error.kind is Kind.INVALID
    assert "4 are more than the limit of 3" in error.message


@pytest.mark.parametrize(
    ("content", "kind"), [(b"{", Kind.MALFORMED), (body(), Kind.INVALID), (body(*"a" * 1000), Kind.INVALID)]
)
def test_what_is_wrong_with_a_body_comes_back_as_a_value(content: bytes, kind: Kind) -> None:
    """It is answered in the format of the dialect that was read."""
    assert refused(content).kind is kind


def test_an_error_after_the_dialect_is_known_is_that_dialects() -> None:
    """On a shared path the error has the format of the dialect whose fields were recognised."""
    (dialects,) = [each for each in SHARED if {"jina", "voyage"} <= {dialect.tag for dialect in each}]
    voyage = next(dialect for dialect in dialects if dialect.tag == "voyage")
    read = Reader(dialects, 3)(b'{"query": "q", "documents": [], "top_k": 1}')
    assert read.dialect is voyage
    assert isinstance(read.outcome, ServiceError)


BODIES = (
    {"question": "q", "candidates": ["a", {"text": "b"}]},
    {"query": "q", "texts": ["a"]},
    {"query": "q", "documents": ["a"]},
    {"model": "m", "query": "q", "documents": ["a"]},
    {"text_1": "q", "text_2": ["a"]},
)


@pytest.mark.parametrize("dialects", by_path(DIALECTS).values(), ids=lambda each: each[0].paths[0])
def test_a_reading_and_what_it_read_go_to_another_process(dialects: tuple) -> None:  # type: ignore[type-arg]
    """Every dialect, its errors and what it renders by survive the way there and back."""
    reading = pickle.loads(pickle.dumps(Reader(dialects, 3)))
    assert reading == Reader(dialects, 3)
    read = reading(b"{")
    again = pickle.loads(pickle.dumps(read))
    assert again.dialect == read.dialect
    assert (again.outcome.kind, again.outcome.message) == (Kind.MALFORMED, read.outcome.message)
    good = [read for read in map(reading, (json.dumps(each).encode() for each in BODIES)) if _is_call(read)]
    assert good
    assert pickle.loads(pickle.dumps(good)) == good


def _is_call(read: Read) -> bool:
    return not isinstance(read.outcome, ServiceError)


def test_a_call_is_the_same_after_the_way_back() -> None:
    """Candidates and rendering options are equal after a round trip through another process."""
    read = READING(body("a", {"id": "x", "text": "b", "previous": "c"}, top_k=2, return_text=True))
    assert pickle.loads(pickle.dumps(read)) == read


GIANT = "a " * 10**6


@pytest.mark.parametrize(
    ("tag", "fields"),
    [
        ("cerberank", {"question": GIANT, "candidates": [GIANT, {"text": GIANT, "previous": GIANT, "id": "7"}]}),
        ("text-embeddings-inference", {"query": GIANT, "texts": [GIANT, "a"]}),
        ("cohere", {"query": GIANT, "documents": [GIANT, {"text": GIANT}]}),
        ("cohere", {"query": GIANT, "documents": ["a"], "return_documents": True}),
        ("cohere", {"model": "m", "query": GIANT, "documents": [GIANT]}),
        ("jina", {"model": "m", "query": GIANT, "documents": ["a"]}),
        ("jina", {"model": "m", "query": GIANT, "documents": [GIANT], "return_documents": False}),
        ("voyage", {"model": "m", "query": GIANT, "documents": [GIANT]}),
        ("vllm", {"text_1": GIANT, "text_2": [GIANT]}),
        ("vllm", {"query": GIANT, "documents": ["a"]}),
        ("text-embeddings-inference", {"query": GIANT, "texts": ["a"], "return_text": True}),
        ("voyage", {"model": "m", "query": GIANT, "documents": ["a"], "return_documents": True}),
    ],
)
def test_what_nobody_reads_does_not_come_back_from_another_process(tag: str, fields: dict[str, object]) -> None:
    """A text to its first 64 K characters, and only once, whatever dialect it came in."""
    content = json.dumps(fields).encode()
    sizes = [
        len(pickle.dumps(read))
        for dialect in DIALECTS
        if dialect.tag == tag and _is_call(read := Reader((dialect,), 3)(content))
    ]
    assert sizes
    assert max(sizes) < 4 * MOST_CHARACTERS + 10_000


def test_texts_that_the_answer_repeats_come_back_whole() -> None:
    """What the model cannot read, the client may want back."""
    made = READING(body(GIANT, "b", return_text=True)).outcome
    assert isinstance(made, tuple)
    call, wanted = made
    assert call.candidates[0].text == readable(GIANT)
    assert wanted.texts == (GIANT, "b")
