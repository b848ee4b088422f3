from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from cerberank_service.dialects import DIALECTS, wire
from cerberank_service.dialects.native import parse
from cerberank_service.dialects.native_schema import EXAMPLE, RankRequest
from cerberank_service.dialects.shared_paths import by_path
from cerberank_service.dialects.wire import CEILING, Document, _has_more_commas, check_fields, read_json
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
    """What /docs shows can be sent as it is."""
    call, _ = parse(read_json(json.dumps(EXAMPLE).encode()))
    assert len(call.candidates) == len(RankRequest.model_validate(EXAMPLE).candidates)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "line 1 column 0"),
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
        ({"question": " \t\n"}, "question: must not be blank"),
        ({"question": 3}, "question: "),
        ({"question": None}, "question: "),
        ({"candidates": []}, "candidates: "),
        ({"candidates": "abc"}, "candidates: "),
        ({"candidates": None}, "candidates: "),
        ({"candidates": ["a", 3]}, "candidates[1]: "),
        ({"candidates": [{"id": "1"}]}, "candidates[0].text: is required"),
        ({"candidates": [{"text": None}]}, "candidates[0].text: "),
        ({"candidates": [{"text": "a", "score": 1}]}, "candidates[0].score: is no field"),
        ({"candidates": [{"text": "a", "id": 5}]}, "candidates[0].id: "),
        ({"top_k": 0}, "top_k: "),
        ({"top_k": "3"}, "top_k: "),
        ({"top_k": 2.0}, "top_k: "),
        ({"top_k": True}, "top_k: "),
        ({"drop_ratio": 1.0}, "drop_ratio: "),
        ({"drop_ratio": -0.1}, "drop_ratio: "),
        ({"drop_ratio": float("nan")}, "drop_ratio: "),
        ({"drop_ratio": [0.1, float("inf")]}, "drop_ratio[1]: "),
        ({"drop_ratio": "0.3"}, "drop_ratio: "),
        ({"drop_ratio": False}, "drop_ratio: "),
        ({"deadline_ms": 0}, "deadline_ms: "),
        ({"deadline_ms": float("inf")}, "deadline_ms: "),
        ({"return_text": "yes"}, "return_text: "),
        ({"topk": 3}, "topk: is no field"),
    ],
)
def test_what_does_not_fit_is_named(fields: dict[str, object], said: str) -> None:
    """422 that begins with the field to change."""
    error = refused(with_fields(**fields))
    assert error.kind is Kind.INVALID
    assert error.message.startswith(said)


@pytest.mark.parametrize("body", [b"null", b"[]", b"3", b'"text"'])
def test_a_body_that_is_no_object_is_invalid(body: bytes) -> None:
    """JSON, but no request."""
    error = refused(body)
    assert (error.kind, error.message) == (Kind.INVALID, "body: Input should be an object")


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
        Reader(dialects, 10)(b'{"query": "q", "documents": ["a"], "question": "q"}')
        assert len(read) == 1, path


@pytest.mark.parametrize("item", [b"1", b"{}", b"null", b"[]"])
def test_a_body_full_of_wrong_items_makes_one_error(item: bytes) -> None:
    """Reporting each of a million items would take minutes and gigabytes: the first one is enough."""
    error = refused(b'{"question": "q", "candidates": [' + b",".join([item] * 50_000) + b"]}")
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


def test_far_too_many_fields_are_refused_unread() -> None:
    """The number of fields that the candidates may have is accepted, and colons in texts do not count."""
    fields = b"{%s}" % b",".join(b'"%d" \n:0' % number for number in range(264))
    check_fields(fields, 10)
    with pytest.raises(ServiceError) as caught:
        check_fields(fields.replace(b"}", b',"more":0}'), 10)
    assert caught.value.kind is Kind.INVALID
    check_fields(b'{"question": "%s"}' % (b"12:30 " * 1000), 10)


NESTED = st.recursive(st.text(st.sampled_from(',"\\u é\n'), max_size=8) | st.integers(), st.lists)


def _without_texts(value: Any) -> Any:
    return [_without_texts(item) for item in value] if isinstance(value, list) else 0


@given(NESTED, st.booleans(), st.integers(-1, 1))
def test_far_too_many_items_are_refused_unread(value: Any, ascii_only: bool, more: int) -> None:
    """Items are counted by the commas between them; commas in texts do not count, whatever surrounds them."""
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    commas = json.dumps(_without_texts(value)).count(",")
    assert _has_more_commas(body, commas + more) == (more < 0)


def test_items_of_as_many_candidates_as_are_allowed_are_read() -> None:
    """The rule is for millions: prose with more commas than the limit passes, and one item too many does not."""
    check_fields(b'["%s"]' % (b"1,2,3 " * 1000), 10)
    check_fields(b"[%s0]" % (b"0," * 264), 10)
    with pytest.raises(ServiceError, match="far too many items"):
        check_fields(b"[%s0]" % (b"0," * 265), 10)
