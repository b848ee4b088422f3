from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_core import from_json

from cerberank_models.request import EXAMPLE
from cerberank_service.dialects import DIALECTS, wire
from cerberank_service.dialects.dialect import FormattedError, by_path
from cerberank_service.dialects.native import parse
from cerberank_service.dialects.native_schema import RankRequest
from cerberank_service.dialects.open_inference import InferRequest
from cerberank_service.dialects.wire import (
    CEILING,
    STRUCTURE_PER_CANDIDATE,
    Document,
    _has_more,
    check_structure,
    read_json,
)
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.ranking.read import Reader

GOOD: dict[str, Any] = {"question": "q", "candidates": ["a", {"id": "7", "text": "b", "previous": "p", "next": "n"}]}


def refused(body: bytes) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        parse(read_json(body))
    return caught.value


def with_fields(**fields: object) -> bytes:
    return json.dumps(GOOD | fields).encode()


def test_the_documented_example_is_valid() -> None:
    """The example that /docs shows can be sent as it is."""
    call, _ = parse(read_json(json.dumps(EXAMPLE).encode()))
    assert len(call.candidates) == len(RankRequest.model_validate(EXAMPLE).candidates)


def test_a_byte_order_mark_is_left_out() -> None:
    """PowerShell writes it before a file's JSON. A second one is not JSON."""
    call, _ = parse(read_json(b"\xef\xbb\xbf" + with_fields()))
    assert call.question == "q"
    assert refused(b"\xef\xbb\xbf" * 2 + with_fields()).kind is Kind.MALFORMED


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body is empty; send an object of JSON"),
        (b"question=a&candidates=b", "begins with 'question=a&candidate'; send an object of JSON"),
        (b"\xff\xfe{", "send an object of JSON"),
        (b"{'question': 1}", "line 1 column 2"),
        (b'{"candidates": [', "line 1 column 16"),
        (b"[" * 100_000, "not valid"),
        (b'{"question": "\xff", "candidates": ["a"]}', "not valid UTF-8"),
        (b'{"question": "q", "candidates": ["a"], "top_k": ' + b"9" * 5000 + b"}", "not valid"),
    ],
)
def test_what_is_no_json_is_malformed(body: bytes, said: str) -> None:
    """400: nothing about the fields can be said."""
    error = refused(body)
    assert error.kind is Kind.MALFORMED
    assert said in error.message


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"question": "\u200b\u0301"}, "question: must not be blank"),
        ({"question": None}, "question: "),
        ({"candidates": ["a", 3]}, "candidates[1]: must be a text or an object"),
        ({"candidates": [{"id": "1"}]}, "candidates[0].text: is required"),
        ({"candidates": [{"text": "a", "score": 1}]}, "candidates[0].score: is not a field"),
        ({"candidates": [{"text": "a", "id": True}]}, "candidates[0].id: must be a valid integer"),
        ({"candidates": [{"text": "a", "id": 2**64}]}, "candidates[0].id: must be less than"),
        ({"top_k": 0}, "top_k: "),
        ({"top_k": 2.0}, "top_k: "),
        ({"drop_ratio": 1.0}, "drop_ratio: "),
        ({"drop_ratio": float("nan")}, "drop_ratio: "),
        ({"drop_ratio": [0.1, float("inf")]}, "drop_ratio[1]: "),
        ({"deadline_ms": 0}, "deadline_ms: "),
        ({"min_score": "0.5"}, "min_score: must be a valid number"),
        ({"return_text": "yes"}, "return_text: "),
        ({"topk": 3}, "topk: is not a field"),
        ({"text": "a"}, "text: is not a field of this request"),
        ({"question": ["a", "b"]}, "question: this path takes one question; send several to /v1/rank/batch"),
        ({"questions": [GOOD]}, "questions: this path takes one question; send several to /v1/rank/batch"),
        ({"candidates": "abc"}, 'candidates: must be a list, such as ["a text", {'),
        ({"min_score": 50}, "min_score: must be less than or equal to 1, as scores are probabilities"),
        ({"min_precision": 85}, "min_precision: must be less than 1: 0.85 is 85 %"),
        ({"drop_ratio": 20}, "drop_ratio: must be less than 1: 0.2 drops a fifth"),
        ({"return_text": "true"}, "return_text: must be true or false"),
    ],
)
def test_what_does_not_fit_is_named(fields: dict[str, object], said: str) -> None:
    """422 that begins with the field to change."""
    error = refused(with_fields(**fields))
    assert error.kind is Kind.INVALID
    assert error.message.startswith(said)


def test_null_is_an_option_that_was_left_out() -> None:
    """As clients with typed fields send it."""
    optional = {name: None for name in RankRequest.model_fields if name not in ("question", "candidates")}
    assert parse(read_json(with_fields(**optional))) == parse(read_json(with_fields()))


@pytest.mark.parametrize("body", [b"null", b"[]", b"3", b'"text"'])
def test_a_body_that_is_no_object_is_invalid(body: bytes) -> None:
    """JSON, but no request."""
    error = refused(body)
    assert (error.kind, error.message) == (Kind.INVALID, "body: must be an object with question and candidates")


def test_the_bytes_behind_the_json_are_kept_apart() -> None:
    """Triton's binary tensors follow the JSON; without a stated length everything is JSON."""
    assert read_json(b'{"a": 1}\x00\xff', 8) == Document({"a": 1}, b"\x00\xff")
    assert read_json(b'{"a": "\\ud83d"}\x00', 15) == Document({"a": "\ufffd"}, b"\x00")
    assert read_json(b"[1]").fields == {}


def test_json_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the fields tell the dialect: the document that was read for that is the one that is validated."""
    read: list[bytes] = []
    monkeypatch.setattr(wire, "from_json", lambda text, **options: read.append(text) or from_json(text, **options))
    for path, dialects in by_path(DIALECTS).items():
        read.clear()
        with suppress(FormattedError):
            Reader(dialects, 10)(b'{"query": "q", "documents": ["a"], "question": "q"}')
        assert len(read) == 1, path


def test_a_body_full_of_wrong_items_makes_one_error() -> None:
    """Reporting each of a million items would take minutes and gigabytes: the first one is enough."""
    error = refused(b'{"question": "q", "candidates": [' + b",".join([b"{}"] * 50_000) + b"]}")
    assert error.kind is Kind.INVALID
    assert error.message.startswith("candidates[0]")
    assert "more" not in error.message


def test_a_list_beyond_the_ceiling_is_not_read() -> None:
    """Valid items cost too, when there are far more than any limit allows."""
    error = refused(b'{"question": "q", "candidates": [' + b'"",' * CEILING + b'""]}')
    assert error.message == "candidates: holds far more items than this service takes; send fewer"


def test_a_thousand_unknown_fields_make_one_error() -> None:
    """Very many unknown fields, at the top level or within a candidate, give a single error."""
    fields = {f"f{number}": 1 for number in range(1000)}
    assert refused(with_fields(**fields)).message == "body: has far too many fields"
    error = refused(with_fields(candidates=[{"text": "a"} | fields]))
    assert error.message == "candidates[0]: has far too many fields"


NESTED = st.recursive(
    st.text(st.sampled_from(',:[{"\\u é\n'), max_size=8) | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
)


def _marks(value: Any) -> dict[bytes, int]:
    """The number of each mark in the JSON of a value, texts left out."""

    def without_texts(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(place): without_texts(each) for place, each in enumerate(value.values())}
        return [without_texts(each) for each in value] if isinstance(value, list) else 0

    text = json.dumps(without_texts(value))
    return {mark: text.count(mark.decode()) for mark in STRUCTURE_PER_CANDIDATE}


@given(NESTED, st.booleans(), st.sampled_from(list(STRUCTURE_PER_CANDIDATE)), st.booleans())
def test_structure_is_counted_outside_of_texts(value: Any, ascii_only: bool, mark: bytes, one_less: bool) -> None:
    """A body with exactly as much of everything as it may have is not refused, and with one mark more it is."""
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    counts = _marks(value)
    most = counts | {mark: counts[mark] - one_less}
    assert _has_more(body, most) == one_less


@pytest.mark.parametrize("mark", STRUCTURE_PER_CANDIDATE)
def test_far_too_much_structure_is_refused_unread(mark: bytes) -> None:
    """Prose may hold any number of marks; outside of texts there are as many as the candidates may need."""
    check_structure(b'["%s"]' % (mark * 5000), 10)
    most = 10 * STRUCTURE_PER_CANDIDATE[mark] + 64
    check_structure(mark * most, 10)
    with pytest.raises(ServiceError, match="far too many fields or items") as caught:
        check_structure(mark * (most + 1), 10)
    assert caught.value.kind is Kind.INVALID


def _lists(schema: Any) -> Iterator[dict[str, Any]]:
    """Every list in a core schema of pydantic, at any depth, but for those of JsonValue, which refuses nothing."""
    if isinstance(schema, dict):
        items = schema.get("items_schema", {})
        if schema.get("type") == "list" and "JsonValue" not in items.get("schema_ref", ""):
            yield schema
        for each in schema.values():
            yield from _lists(each)
    elif isinstance(schema, list | tuple):
        for each in schema:
            yield from _lists(each)


@pytest.mark.parametrize(
    "request_", sorted({each.request for each in DIALECTS} | {InferRequest}, key=str), ids=lambda each: each.__name__
)
def test_every_list_of_the_wire_is_bounded_and_ends_at_its_first_error(request_: type[BaseModel]) -> None:
    """Without it, a list of a hundred thousand wrong values would hold the GIL for a second to make as many errors."""
    request_.model_rebuild()  # names within it may be known only after its module has been read
    found = list(_lists(request_.__pydantic_core_schema__))
    assert found
    for each in found:
        assert each.get("max_length", CEILING + 1) <= CEILING, each["items_schema"]
        assert each.get("fail_fast"), each["items_schema"]
