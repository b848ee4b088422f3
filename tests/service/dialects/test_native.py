from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json
from starlette.testclient import TestClient

from cerberank_models.calibration import Probabilities
from cerberank_models.encoding import Candidate
from cerberank_models.ranking.assemble import ResponseOptions, response_of
from cerberank_models.ranking.call import RankAnswer, Timing
from cerberank_models.windows import Windowing
from cerberank_service.dialects.native import parse
from cerberank_service.dialects.native_schema import RankResponse
from cerberank_service.dialects.wire import read_json
from cerberank_service.errors import ServiceError

GOOD: dict[str, Any] = {"question": "q", "candidates": ["a", {"id": "7", "text": "b", "previous": "p", "next": "n"}]}


def with_fields(**fields: object) -> bytes:
    return json.dumps(GOOD | fields).encode()


def test_texts_and_objects_become_candidates() -> None:
    """Both forms may be mixed; a neighbour that is missing or null is empty."""
    call, wanted = parse(read_json(json.dumps(GOOD).encode()))
    assert call.candidates == (Candidate(text="a"), Candidate(text="b", previous="p", next="n"))
    beside_nothing = [{"text": "b", "previous": None, "next": None}]
    assert parse(read_json(with_fields(candidates=beside_nothing)))[0].candidates == (Candidate(text="b"),)
    assert (call.question, call.model, call.top_k, call.drop_ratio, call.deadline_ms) == ("q", None, None, None, None)
    assert wanted == ResponseOptions(ids=(None, "7"), metadata=(None, None), texts=None, heads=False, min_score=None)


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
    rendered = response_of(answer(), wanted)
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
    rendered = response_of(answer(spans=np.asarray([[-1, -1], [3, 9]])), wanted)
    RankResponse.model_validate(rendered)
    assert rendered["results"][0]["window"] == {"start": 3, "end": 9}
    assert "window" not in rendered["results"][1]


@pytest.mark.parametrize("value", ["off", "best", "mean"])
def test_windows_say_how_long_texts_are_read(value: str) -> None:
    """Without the field in windows, of which the best one counts."""
    call, _ = parse(read_json(with_fields(windows=value)))
    assert (call.windowing.combine if call.windowing else "off") == value
    assert parse(read_json(json.dumps(GOOD).encode()))[0].windowing == Windowing()


def test_min_score_leaves_results_out_last() -> None:
    """Below it, or without a score; `top_k` was applied before, and the candidates are counted as ever."""
    scores = np.asarray([0.7, np.nan, 0.3, 0.5], np.float32)
    given = answer(
        order=np.asarray([0, 3, 2, 1]), scores=scores, stages=np.asarray([1, -1, 1, 1]), truncated=np.zeros(4, np.bool_)
    )

    def places(min_score: float | None) -> list[int]:
        candidates = ["a", "b", "c", "d"]
        _, options = parse(read_json(with_fields(candidates=candidates, min_score=min_score)))
        rendered = response_of(given, options)
        assert rendered["usage"]["candidates"] == 4
        assert all(min_score is None or result["score"] >= min_score for result in rendered["results"])
        return [result["index"] for result in rendered["results"]]

    assert places(None) == [0, 3, 2, 1]
    assert places(0.5) == [0, 3]
    assert places(0.7) == []  # as 32-bit number 0.7 is told as 0.699999988
    assert places(-1.0) == [0, 3, 2]


@pytest.mark.parametrize("name", ["7", 7, -(2**63), 2**64 - 1])
def test_an_id_is_a_text_or_an_integer_and_comes_back(name: str | int) -> None:
    """As it was sent, in its own type."""
    _, options = parse(read_json(with_fields(candidates=[{"text": "a", "id": name}, {"text": "b"}])))
    rendered = json.loads(to_json(response_of(answer(), options)))
    assert [result.get("id") for result in rendered["results"]] == [None, name]


def test_metadata_come_back_as_they_came(client: TestClient) -> None:
    """Nested, with nulls; a candidate without any has none."""
    metadata = {"page": 3, "source": {"url": "https://example.org", "tags": ["a", None]}, "empty": None}
    documents = [{"text": "330 metres", "metadata": metadata}, "iron"]
    results = client.post("/v1/rank", json={"query": "how tall?", "documents": documents}).json()["results"]
    assert {result["index"]: result.get("metadata") for result in results} == {0: metadata, 1: None}


def test_other_services_names_are_read(client: TestClient) -> None:
    """query, documents and top_n are question, candidates and top_k; both of two names are an error."""
    own = {"question": "how tall?", "candidates": ["330 metres", "iron"], "top_k": 1}
    other = {"query": "how tall?", "documents": ["330 metres", "iron"], "top_n": 1}
    assert client.post("/v1/rank", json=other).json()["results"] == client.post("/v1/rank", json=own).json()["results"]
    batch = client.post("/v1/rank/batch", json={"questions": [other]}).json()
    assert batch["answers"][0]["answer"]["results"] == client.post("/v1/rank", json=own).json()["results"]
    refused = client.post("/v1/rank", json=own | {"top_n": 1})
    assert refused.status_code == 422
    assert "top_n: is not a field of this request beside top_k" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({"topk": 1}, "topk: is not a field of this request; is top_k meant?"),
        ({"candidates": [{"text": "a", "page_content": "b"}]}, "page_content: is not a field of this request; is text"),
        ({"returnDocuments": True}, "returnDocuments: is not a field of this request; is return_text meant?"),
        ({"topK": 1}, "topK: is not a field of this request; is top_k meant?"),
        ({"xyzzy": 1}, "xyzzy: is not a field of this request"),
    ],
)
def test_an_unknown_field_names_the_one_that_is_meant(fields: dict[str, Any], meant: str) -> None:
    """By its spelling, or by what other libraries call it; a name like none of them gets no proposal."""
    with pytest.raises(ServiceError) as caught:
        parse(read_json(with_fields(**fields)))
    assert meant in caught.value.message
    assert ("; is " in caught.value.message) == ("; is " in meant)


@pytest.mark.parametrize(("field", "path"), [("texts", "/rerank"), ("passages", "/v1/ranking")])
def test_a_body_of_another_dialect_is_told_its_path(field: str, path: str) -> None:
    """A client that was pointed here by mistake."""
    with pytest.raises(ServiceError) as caught:
        parse(read_json(json.dumps({"query": "q", field: ["a"]}).encode()))
    assert caught.value.message.startswith(f"query, {field}: ")
    assert caught.value.message.endswith(path)


def test_an_instruction_is_for_models_with_a_prompt(client: TestClient) -> None:
    """The others refuse it; an empty one is none."""
    refused = client.post("/v1/rank", json=GOOD | {"instruction": "judge by the numbers"})
    assert refused.status_code == 422
    assert "has no prompt that could hold it" in refused.text
    assert client.post("/v1/rank", json=GOOD | {"instruction": ""}).status_code == 200


def test_texts_and_heads_are_given_when_asked_for() -> None:
    """A dropped candidate has no heads: no head saw it."""
    _, wanted = parse(read_json(with_fields(return_text=True, return_heads=True)))
    first, second = response_of(answer(), wanted)["results"]
    assert (first["text"], first["heads"]) == ("b", [0.5, 1.0])
    assert second["text"] == "a"
    assert "heads" not in second


def test_a_precision_that_the_first_result_does_not_reach_leaves_nothing() -> None:
    """Although a candidate that an exit dropped has a higher score: the precision is that of first results."""
    _, options = parse(read_json(with_fields(candidates=["a", "b"], min_precision=0.8)))
    calibrated = Probabilities(scores=np.asarray([0.7, 0.4]), answerable=0.5)
    for threshold, places in ((0.5, []), (0.4, [1, 0]), (None, [1, 0])):
        rendered = response_of(answer(calibrated=calibrated, threshold=threshold), options)
        assert [result["index"] for result in rendered["results"]] == places
    assert rendered["answerable"] == 0.5
    assert [result["raw_score"] for result in rendered["results"]] == [0.75, 0.25]
