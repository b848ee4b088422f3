"""The promises of the wire about deadlines, priorities and latency targets."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.service.asking import busy
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend, ranker_config
from tests.service.observe import samples, set_speed, wait_until

from cerberank_models.config import TunedSchedule
from cerberank_service.dialects.native_schema import RankResponse

BODY: dict[str, Any] = {"question": "how tall is it?", "candidates": ["it is old", "330 metres", "in paris", "1889"]}


TUNED = (
    TunedSchedule(schedule=(0.0, 0.0), cost=1.0, metrics={"map": 80.0, "map_loss": 0.0}),
    TunedSchedule(schedule=(0.5, 0.5), cost=0.5, metrics={"map": 78.5, "map_loss": 1.5}),
)


def rank(client: TestClient, headers: Mapping[str, str] | None = None, **fields: object) -> dict[str, Any]:
    answer: dict[str, Any] = client.post("/v1/rank", json=BODY | fields, headers=headers).raise_for_status().json()
    RankResponse.model_validate(answer)
    return answer


@pytest.fixture
def tuned(serve: Serve) -> TestClient:
    config = ranker_config(schedule=(0.2, 0.2)).model_copy(update={"tuned_schedules": TUNED})
    return serve(FakeBackend(config), latency_target_ms=0)


MANY = [f"{number} {'a' * 30}" for number in range(100)]
"""Candidates of many steps of 128 tokens."""


@pytest.mark.parametrize(("seconds_per_token", "schedule", "loss"), [(1e-9, [0.0, 0.0], 0.0), (9.0, [0.5, 0.5], 1.5)])
def test_the_most_accurate_tuned_schedule_that_is_in_time_is_used(
    tuned: TestClient, seconds_per_token: float, schedule: list[float], loss: float
) -> None:
    """The answer and the metrics say which, and what it is expected to cost."""
    set_speed(tuned, seconds_per_token)
    before = samples(tuned)
    answer = rank(tuned, latency_target_ms=60_000)
    assert (answer["drop_schedule"], answer["expected_loss"]) == (schedule, {"map": loss} if loss else {})
    after = samples(tuned)
    grown = {name for name in after if after[name] != before[name]}
    label = ",".join(f"{ratio:g}" for ratio in schedule)
    assert f"cerberank_schedules_total{{model=fake-ranker,schedule={label},version=7}}" in grown
    metric = "cerberank_expected_loss_points_total{metric=map,model=fake-ranker,version=7}"
    assert after[metric] - before[metric] == loss
    assert set(after) == set(before)


def test_nothing_dropped_is_no_expected_loss(tuned: TestClient) -> None:
    """With a schedule that costs points, but for a single candidate, which no exit drops."""
    set_speed(tuned, 9.0)
    answer = rank(tuned, latency_target_ms=60_000, candidates=["a"])
    assert (answer["drop_schedule"], answer["expected_loss"]) == ([0.5, 0.5], {})


def test_an_explicit_drop_ratio_always_wins(tuned: TestClient) -> None:
    """A drop ratio takes precedence; without a target the checkpoint's schedule is used."""
    set_speed(tuned, 9.0)
    assert rank(tuned, latency_target_ms=1, drop_ratio=0.1)["drop_schedule"] == [0.1, 0.1]
    answer = rank(tuned)
    assert (answer["drop_schedule"], answer["expected_loss"]) == ([0.2, 0.2], {})


def test_the_setting_is_a_target_for_every_request(serve: Serve) -> None:
    """One of the request's own takes its place."""
    config = ranker_config().model_copy(update={"tuned_schedules": TUNED})
    client = serve(FakeBackend(config), latency_target_ms=1)
    set_speed(client, 9.0)
    assert rank(client)["drop_schedule"] == [0.5, 0.5]
    assert rank(client, latency_target_ms=1e9)["drop_schedule"] == [0.0, 0.0]


def test_a_target_without_tuned_schedules_is_a_warning(client: TestClient) -> None:
    """It must not be silently without effect."""
    assert "no tuned schedules" in rank(client, latency_target_ms=1)["warnings"][0]


def test_models_lists_the_tuned_schedules(tuned: TestClient) -> None:
    """So that a client knows what a target may cost."""
    (model,) = tuned.get("/v1/models").json()["models"]
    known = model["tuned_schedules"][1]
    assert (known["schedule"], known["cost"], known["metrics"]) == ([0.5, 0.5], 0.5, TUNED[1].metrics)


def test_the_header_is_a_deadline_for_every_dialect(client: TestClient) -> None:
    """Also where the body has no field for one; a wrong value is refused."""
    assert rank(client, headers={"X-Request-Timeout-Ms": "0.001"})["complete"] is False
    query = {"query": "how tall?", "texts": ["a", "b"]}
    assert client.post("/rerank", json=query, headers={"X-Request-Timeout-Ms": "0.001"}).status_code == 200
    refused = client.post("/rerank", json=query, headers={"X-Request-Timeout-Ms": "soon"})
    assert (refused.status_code, refused.json()["error_type"]) == (422, "Validation")


def test_candidates_without_a_score_say_so(serve: Serve) -> None:
    """Null and stage -1 in the native answer, 0 and a warning in dialects that know no such thing."""
    client = serve(FakeBackend(), step_tokens=128)
    texts = [f"{number} abcdefg" for number in range(40)]
    answer = rank(client, candidates=texts, deadline_ms=0.001)
    scored = [result for result in answer["results"] if result["stage"] == 0]
    unscored = answer["results"][len(scored) :]
    assert 0 < len(scored) < 40
    assert {(result["score"], result["stage"]) for result in unscored} == {(None, -1)}
    assert f"{len(unscored)} candidates were not scored in time" in answer["warnings"][1]
    body = {"model": "fake-ranker", "query": "how?", "documents": texts}
    cohere = client.post("/v2/rerank", json=body, headers={"X-Request-Timeout-Ms": "0.001"}).json()
    assert cohere["results"][-1]["relevance_score"] == 0.0
    assert "not scored" in cohere["meta"]["warnings"][1]


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/rank", BODY), ("/v2/rerank", {"model": "fake-ranker", "query": "how?", "documents": ["a", "b"]})],
)
def test_a_low_priority_is_refused_first(serve: Serve, path: str, body: dict[str, Any]) -> None:
    """It would wait for the whole backlog of a minute, the same question of the highest priority for a step or two."""
    backend = FakeBackend()
    client = serve(backend, step_tokens=128)
    tokens = client.post("/v1/rank", json=BODY | {"candidates": MANY}).json()["usage"]["tokens"]
    set_speed(client, 60.0 / tokens)
    with ThreadPoolExecutor(2) as pool:
        with busy(backend, pool.submit, client.post, "/v1/rank", json=BODY | {"candidates": MANY}) as first:
            low = client.post(path, json=body | {"priority": 999})
            high = pool.submit(client.post, path, json=body | {"priority": 0})
            wait_until(lambda: samples(client)["cerberank_requests_in_flight{}"] == 2)
        assert [first.result(20).status_code, high.result(20).status_code] == [200, 200]
    assert low.status_code == 503
    assert int(low.headers["Retry-After"]) >= 1
    assert client.post(path, json=body | {"priority": 1000}).status_code == 422


def test_what_would_wait_too_long_is_refused_at_once_by_default(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """While another question needs a minute, the refusal has a Retry-After; an idle service takes that one as well.

    Its log line and the metrics say why, and with how many candidates.
    """
    caplog.set_level("INFO")
    backend = FakeBackend()
    client = serve(backend)
    set_speed(client, 1.0)
    with ThreadPoolExecutor(1) as pool:
        with busy(backend, pool.submit, client.post, "/v1/rank", json=BODY) as first:
            refused = client.post("/v1/rank", json=BODY)
        assert first.result(20).status_code == 200
    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) >= 1
    assert rank(client)["complete"]
    (line,) = (record.__dict__["fields"] for record in caplog.records if record.getMessage() == "refused")
    assert (line["refusal"], line["candidates"]) == ("queue", len(BODY["candidates"]))
    assert line["predicted_queue_ms"] > 5000.0
    found = samples(client)
    assert found["cerberank_refused_requests_total{reason=queue}"] == 1
    assert found["cerberank_offered_seconds_total{outcome=refused}"] > 5.0
