from __future__ import annotations

import json

import pytest

from cerberank_service.dialects import DIALECTS
from cerberank_service.dialects.dialect import FormattedError, by_path
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.ranking.read import Reader

SHARED = [dialects for dialects in by_path(DIALECTS).values() if len(dialects) > 1]
READING = Reader(by_path(DIALECTS)["/v1/rank"], 3)


def body(*candidates: object, **fields: object) -> bytes:
    return json.dumps({"question": "q", "candidates": candidates, **fields}).encode()


def refused(content: bytes) -> ServiceError:
    with pytest.raises(FormattedError) as caught:
        READING(content)
    assert isinstance(caught.value.error, ServiceError)
    return caught.value.error


def test_too_many_candidates_are_refused_with_the_limit() -> None:
    """The limit itself is accepted, and one candidate more is refused."""
    call = READING(body("a", "b", "c")).call
    assert [candidate.text for candidate in call.candidates] == ["a", "b", "c"]
    error = refused(body("a", "a", "a", "a"))
    assert error.kind is Kind.INVALID
    assert "4 are more than the limit of 3" in error.message


def test_a_long_list_is_refused_before_candidates_are_made_of_it() -> None:
    """By the name that the dialect gives to candidates; making them would cost a microsecond each."""
    texts = json.dumps({"query": "q", "documents": ["x"] * 100}).encode()
    with pytest.raises(FormattedError) as caught:
        Reader(by_path(DIALECTS)["/v2/rerank"], 20)(texts)
    assert isinstance(caught.value.error, ServiceError)
    assert "documents: 100 are more than the limit of 20" in caught.value.error.message


@pytest.mark.parametrize(
    ("content", "kind"), [(b"{", Kind.MALFORMED), (b"{}", Kind.INVALID), (body(*"a" * 1000), Kind.INVALID)]
)
def test_what_is_wrong_with_a_body_has_its_kind(content: bytes, kind: Kind) -> None:
    """Broken JSON is 400, fields that are missing or too many are 422."""
    assert refused(content).kind is kind


def test_an_error_after_the_dialect_is_known_is_that_dialects() -> None:
    """On a shared path the error has the format of the dialect whose fields were recognised."""
    dialects = next(each for each in SHARED if {"jina", "voyage"} <= {dialect.tag for dialect in each})
    voyage = next(dialect for dialect in dialects if dialect.tag == "voyage")
    with pytest.raises(FormattedError) as caught:
        Reader(dialects, 3)(b'{"query": "q", "documents": [], "top_k": 1}')
    assert caught.value.format_error is voyage.format_error


def test_texts_that_the_answer_repeats_stay_whole() -> None:
    """The client may want back texts that the model cannot read."""
    giant = "a " * 10**6
    assert READING(body(giant, "b", return_text=True)).options.texts == (giant, "b")


def test_only_the_json_of_a_body_is_bounded_in_structure() -> None:
    """The texts of binary tensors follow it without quotation marks, and may hold any number of brackets."""
    json_part = body("a")
    (native,) = READING.dialects
    reader = Reader((native,), 3, json_bytes=len(json_part))
    assert len(reader(json_part + b"[1], {2}: " * 1000).call.candidates) == 1
    with pytest.raises(FormattedError, match="far too many"):
        READING(json_part + b"[1], {2}: " * 1000)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *((path, {"query": "q", "documents": ["a"], "model": "m"}) for path in ("/v1/rerank", "/v2/rerank", "/rerank")),
        *((f"/{vendor}/rerank", {"query": "q", "documents": ["a"], "model": "m"}) for vendor in ("infinity", "vllm")),
        *((f"/{vendor}/v1/rerank", {"query": "q", "documents": ["a"], "model": "m"}) for vendor in ("jina", "voyage")),
        ("/rerank", {"query": "q", "texts": ["a"]}),
        ("/score", {"text_1": "q", "text_2": ["a"]}),
    ],
)
def test_a_vendor_s_unknown_fields_are_named_and_not_refused(path: str, body: dict[str, object]) -> None:
    """The same body without them gives the same call; the native wire refuses them."""
    reader = Reader(by_path(DIALECTS)[path], 3)
    plain = reader(json.dumps(body).encode())
    read = reader(json.dumps(body | {"overlap_tokens": 80, "return_len": "true"}).encode())
    assert read.ignored == ("overlap_tokens", "return_len")
    assert plain.ignored == ()
    assert (read.call, read.dialect) == (plain.call, plain.dialect)
    with pytest.raises(FormattedError, match="overlap_tokens: is not a field"):
        READING(json.dumps({"question": "q", "candidates": ["a"], "overlap_tokens": 80}).encode())


def test_very_many_unknown_fields_are_refused() -> None:
    """Hostile bodies stay cheap: more fields than any client has are one error."""
    body = {"query": "q", "documents": ["a"], "model": "m"} | {f"x{number}": 1 for number in range(100)}
    with pytest.raises(FormattedError, match="far too many fields"):
        Reader(by_path(DIALECTS)["/v2/rerank"], 3)(json.dumps(body).encode())
