from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_models.encoding import Candidate
from cerberank_service.call import RankAnswer, Timing
from cerberank_service.dialects.native import ResponseOptions, parse, render
from cerberank_service.dialects.native_schema import RankResponse
from cerberank_service.dialects.wire import read_json

GOOD: dict[str, Any] = {"question": "q", "candidates": ["a", {"id": "7", "text": "b", "previous": "p", "next": "n"}]}


def with_fields(**fields: object) -> bytes:
    return json.dumps(GOOD | fields).encode()


def test_texts_and_objects_become_candidates() -> None:
    """Both forms may be mixed; a missing neighbour is empty."""
    call, wanted = parse(read_json(json.dumps(GOOD).encode()))
    assert call.candidates == (Candidate(text="a"), Candidate(text="b", previous="p", next="n"))
    assert (call.question, call.model, call.top_k, call.drop_ratio, call.deadline_ms) == ("q", None, None, None, None)
    assert wanted == ResponseOptions(ids=(None, "7"), texts=None, heads=False)


def test_options_are_passed_on() -> None:
    """Every optional field of the wire has an effect on the call."""
    call, _ = parse(read_json(with_fields(model="m", top_k=3, drop_ratio=[0.1, 0], deadline_ms=20)))
    assert (call.model, call.top_k, call.drop_ratio, call.deadline_ms) == ("m", 3, (0.1, 0.0), 20.0)


@given(st.text(st.characters(codec="utf-16", categories=None), max_size=20))
def test_any_text_comes_through_and_lone_surrogates_become_replacement_characters(text: str) -> None:
    """A client that cuts an emoji in half does not lose its request."""
    body = json.dumps({"question": "q", "candidates": [{"text": text, "id": "\\ud800"}]}).encode()
    call, wanted = parse(read_json(body))
    assert call.candidates[0].text == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert wanted.ids == ("\\ud800",)


def answer(**changes: Any) -> RankAnswer:
    fields: dict[str, Any] = {
        "request_id": "r",
        "model": "m",
        "version": "1",
        "drop_schedule": (0.5,),
        "complete": True,
        "order": np.asarray([1, 0]),
        "scores": np.asarray([0.25, 0.75]),
        "stages": np.asarray([0, 1]),
        "heads": np.asarray([[np.nan, np.nan], [0.5, 1.0]]),
        "truncated": np.asarray([False, True]),
        "tokens": 12,
        "timing": Timing(encode=1.0, queue=2.0, compute=3.0, total=6.5),
        "warnings": ("careful",),
    }
    return RankAnswer(**(fields | changes))


def test_the_answer_has_the_documented_shape() -> None:
    """Best first, with ids; what was not asked for is left out."""
    _, wanted = parse(read_json(json.dumps(GOOD).encode()))
    rendered = render(answer(), wanted)
    RankResponse.model_validate(rendered)
    assert rendered["results"] == [
        {"index": 1, "id": "7", "score": 0.75, "stage": 1, "truncated": True},
        {"index": 0, "score": 0.25, "stage": 0, "truncated": False},
    ]
    assert rendered["usage"] == {"candidates": 2, "tokens": 12}
    assert rendered["timing_ms"] == {"encode": 1.0, "queue": 2.0, "compute": 3.0, "total": 6.5}
    assert rendered["warnings"] == ["careful"]


def test_the_best_window_of_a_text_that_was_read_in_windows_is_told() -> None:
    """Another text, of one pair, has none."""
    _, wanted = parse(read_json(with_fields(windows="best")))
    rendered = render(answer(spans=np.asarray([[-1, -1], [3, 9]])), wanted)
    RankResponse.model_validate(rendered)
    assert rendered["results"][0]["window"] == {"start": 3, "end": 9}
    assert "window" not in rendered["results"][1]


@pytest.mark.parametrize("value", ["off", "best", "mean"])
def test_windows_say_how_long_texts_are_read(value: str) -> None:
    """Without the field they are cut."""
    call, _ = parse(read_json(with_fields(windows=value)))
    assert (call.windowing.combine if call.windowing else "off") == value
    assert parse(read_json(json.dumps(GOOD).encode()))[0].windowing is None


def test_texts_and_heads_are_given_when_asked_for() -> None:
    """A dropped candidate has no heads: no head saw it."""
    _, wanted = parse(read_json(with_fields(return_text=True, return_heads=True)))
    first, second = render(answer(), wanted)["results"]
    assert (first["text"], first["heads"]) == ("b", [0.5, 1.0])
    assert second["text"] == "a"
    assert "heads" not in second


def test_falling_scores_never_rise() -> None:
    """A dropped candidate's score is capped by the survivors above it, for clients that sort by score."""
    falling = answer(order=np.asarray([0, 1, 2]), scores=np.asarray([0.4, 0.9, 0.1])).falling_scores()
    assert falling.tolist() == [0.4, 0.4, 0.1]
