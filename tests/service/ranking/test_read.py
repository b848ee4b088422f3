from __future__ import annotations

import json

import pytest

from cerberank_service.call import RankCall
from cerberank_service.dialects import DIALECTS
from cerberank_service.dialects.shared_paths import by_path
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.ranking.read import Reader

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


def test_texts_that_the_answer_repeats_stay_whole() -> None:
    """What the model cannot read, the client may want back."""
    giant = "a " * 10**6
    made = READING(body(giant, "b", return_text=True)).outcome
    assert isinstance(made, tuple)
    assert made[1].texts == (giant, "b")
