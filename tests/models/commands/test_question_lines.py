from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cerberank_models.commands.question_lines import read_line, read_questions
from cerberank_models.encoding import Candidate
from cerberank_models.request import is_blank

TEXTS = st.text(st.characters(codec=None), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "question", "candidates", "text", "next"]) | TEXTS, inner, max_size=4)
    ),
    max_leaves=10,
)


def line(**fields: object) -> bytes:
    return json.dumps({"question": "who ?", "candidates": ["a"], **fields}).encode()


def test_texts_and_objects_become_candidates() -> None:
    """Texts and objects are read; context and id are kept, absent fields are empty, labels are ignored."""
    objects = [{"text": "b", "previous": "a", "next": "c", "id": "two", "label": 1}, "d"]
    request = read_line(line(candidates=objects)).request
    assert request.texts() == (Candidate(text="b", previous="a", next="c"), Candidate(text="d"))
    assert request.ids == ("two", None)


def test_a_line_of_training_data_is_a_question() -> None:
    """Every key of docs/data.md's generic form; a null is an absent text, and a number is an id as in the service."""
    rows = [{"id": 3, "text": "b", "label": "yes", "score": 0.93, "docid": "d7", "previous": None, "next": None}]
    got = read_line(line(id=17, title="Paris", candidates=rows))
    assert (got.id, got.request.ids, got.request.texts()) == (17, (3,), (Candidate(text="b"),))


def test_a_line_is_a_body_of_the_service() -> None:
    """Its options are stronger than those that all lines share, and its fields may have their other names."""
    content = json.dumps({"query": "who ?", "documents": ["a"], "top_n": 2, "min_score": 0.5}).encode()
    request = read_line(content, {"top_k": 1, "windows": "off"}).request
    assert request.body() == {
        "question": "who ?",
        "candidates": ["a"],
        "top_k": 2,
        "min_score": 0.5,
        "windows": "off",
    }


def test_a_byte_order_mark_is_no_content() -> None:
    """A byte-order mark, which editors on Windows write, is skipped."""
    assert read_line(b"\xef\xbb\xbf" + line()).request.question == "who ?"


def test_half_an_emoji_becomes_a_replacement_character() -> None:
    """Lone surrogates in texts and ids become U+FFFD, as in the service; a surrogate pair stays."""
    got = read_line(rb'{"id": "\udc00", "question": "\ud83d\ude00", "candidates": ["a\ud83d b"]}')
    assert (got.id, got.request.question, got.request.candidates) == ("\ufffd", "\U0001f600", ["a\ufffd b"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "^is not JSON: "),
        (b"\xff\xfe{", "^is not UTF-8: |^is not JSON: "),
        (b'{"question": "caf\xe9"}', "^is not UTF-8: .* byte 17$"),
        (b"[" * 100_000, "^is nested too deeply$"),
        (b"[]", "^is not an object; a line holds one whole object$"),
        (b'{"question": "who ?",', "^is not JSON: .*; a line holds one whole object$"),
        (line(question=" \n"), "^question: must not be blank$"),
        (line(question="\u200b"), "^question: must not be blank$"),
        (line(candidates=["a", 3]), r"^candidates\[1\]: must be a text or an object"),
        (line(candidates=["a", {"text": "b", "txet": "c"}]), r"^candidates\[1\].txet: is not a field of this request"),
        (line(candidates=[{"id": "x"}]), r"^candidates\[0\].text: is required$"),
        (line(id=[3]), "^id: must be a text or a whole number$"),
        (line(topk=1), "^topk: is not a field of this request; is top_k meant"),
        (line(min_score="0.5"), "^min_score: must be a valid number"),
    ],
)
def test_what_is_wrong_is_named(content: bytes, message: str) -> None:
    """The error is one line that names the field and none of our types."""
    with pytest.raises(ValueError, match=message) as error:
        read_line(content)
    assert "\n" not in str(error.value)


@given(content=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
@example(content=b"\x00")
def test_any_bytes_are_a_question_or_a_value_error(content: bytes) -> None:
    """No other error is raised, and what is read can be written again as UTF-8."""
    try:
        read = read_line(content)
    except ValueError:
        return
    json.dumps([read.id, read.request.body()], ensure_ascii=False).encode()


@given(
    question=st.text(min_size=1).filter(lambda text: not is_blank(text)),
    texts=st.lists(st.text(), max_size=4),
)
def test_valid_text_arrives_unchanged(question: str, texts: list[str]) -> None:
    """Valid text is unchanged, whether JSON escapes it or not."""
    for escaped in (True, False):
        content = json.dumps({"question": question, "candidates": texts}, ensure_ascii=escaped).encode()
        got = read_line(content)
        assert (got.request.question, got.request.candidates) == (question, texts)


def test_blank_lines_hold_no_question(tmp_path: Path) -> None:
    """They are skipped, as are questions without candidates, and count in the number of a wrong line."""
    (tmp_path / "q.jsonl").write_bytes(b"\n" + line() + b"\n \n" + line(candidates=[]) + b"\n")
    assert read_questions(tmp_path / "q.jsonl") == [("who ?", [Candidate(text="a")])]
    (tmp_path / "q.jsonl").write_bytes(b"\n" + line() + b"\n\n{")
    with pytest.raises(ValueError, match=r"q\.jsonl:4: is not JSON"):
        read_questions(tmp_path / "q.jsonl")


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    """So that nothing is calibrated, or trained, on nothing."""
    (tmp_path / "empty.jsonl").write_bytes(b"\n")
    with pytest.raises(ValueError, match=r"empty\.jsonl holds no question"):
        read_questions(tmp_path / "empty.jsonl")
