from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from starlette.testclient import TestClient
from tests.service.asking import held
from tests.service.conftest import Serve
from tests.service.fakes import RAISES, FakeBackend
from tests.service.observe import samples, wait_until

from cerberank_models.config import TunedSchedule
from cerberank_service.call import RankAnswer, Timing
from cerberank_service.errors import Kind
from cerberank_service.telemetry.logs import FIELDS
from cerberank_service.telemetry.metrics import LONGEST_NAME, MOST_NAMES, Metrics, heads_agree
from cerberank_service.telemetry.series import PHASES, SECONDS

MODEL = "model=fake-ranker"
VERSION = "version=7"


def test_all_series_exist_before_the_first_request(client: TestClient) -> None:
    """A dashboard never shows a gap, and a rate never misses the first event."""
    before = set(samples(client))
    client.post("/v1/rank", json={"question": "q", "candidates": ["a", "b"], "drop_ratio": 0.5})
    client.post("/v1/rank", json={"question": "q", "candidates": ["a"], "deadline_ms": 0.001})
    client.post("/v1/rank", json={"question": "q", "candidates": []})
    client.post("/v1/rank", content=b"{")
    client.get("/nowhere")
    assert set(samples(client)) == before


def test_the_alert_on_descriptors_has_its_figures(client: TestClient) -> None:
    figures = samples(client)
    assert 0 < figures["process_open_fds{}"] <= figures["process_max_fds{}"]


def test_series_without_a_model_exist_while_it_loads() -> None:
    """Errors by kind are there from the first scrape."""
    text = generate_latest(Metrics().registry).decode()
    for kind in Kind:
        assert f'cerberank_errors_total{{kind="{kind.label}"}} 0.0' in text


def test_an_answer_is_counted_once(serve: Serve) -> None:
    """Candidates, tokens by stage, drops by stage, duplicates, truncated ones, phases."""
    backend = FakeBackend()
    client = serve(backend)
    before, padding = samples(client), backend.counts.padding_tokens
    candidates = ["a", "bc", "def", "def", "x " * 100]
    body = {"question": "q", "candidates": candidates, "drop_ratio": [0.5, 0.0], "windows": "off"}
    answer = client.post("/v1/rank", json=body).json()
    after = samples(client)
    grown = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    labels = f"{MODEL},{VERSION}"
    assert grown[f"cerberank_requests_total{{complete=true,{labels}}}"] == 1
    assert grown[f"cerberank_request_candidates_sum{{{labels}}}"] == 5
    assert grown[f"cerberank_duplicate_candidates_total{{{labels}}}"] == 1
    assert grown[f"cerberank_truncated_candidates_total{{{labels}}}"] == 1
    assert grown[f"cerberank_dropped_candidates_total{{{MODEL},stage=0,{VERSION}}}"] == 2
    assert f"cerberank_dropped_candidates_total{{{MODEL},stage=1,{VERSION}}}" not in grown
    assert grown[f"cerberank_tokens_total{{{MODEL},stage=0,{VERSION}}}"] == answer["usage"]["tokens"]
    assert grown[f"cerberank_padding_tokens_total{{{labels}}}"] == backend.counts.padding_tokens - padding
    for stage in range(3):
        assert grown[f"cerberank_engine_steps_total{{{MODEL},stage={stage},{VERSION}}}"] == 1
    series = {phase: f"{{{MODEL},phase={phase},{VERSION}}}" for phase in PHASES}
    assert {grown[f"cerberank_request_phase_seconds_count{which}"] for which in series.values()} == {1}
    seconds = {each: grown.get(f"cerberank_request_phase_seconds_sum{which}", 0.0) for each, which in series.items()}
    for phase in ("encode", "queue", "compute"):
        assert seconds[phase] == pytest.approx(answer["timing_ms"][phase] / 1000.0, abs=1e-6)
    total = seconds.pop("total")
    assert total == pytest.approx(sum(seconds.values()), abs=1e-6)
    assert total >= answer["timing_ms"]["total"] / 1000.0
    assert not any(name.startswith("cerberank_errors") for name in grown)


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        ("/v1/rank", b"{", Kind.MALFORMED),
        ("/v1/rank", b'{"question": "", "candidates": ["a"]}', Kind.INVALID),
        ("/v1/rank", b'{"question": "q", "candidates": ["a"], "model": "x"}', Kind.NOT_FOUND),
        ("/v1/rank", b" " * 2000, Kind.TOO_LARGE),
        ("/v1/rank", b'{"question": "q", "candidates": ["%s"]}' % RAISES.encode(), Kind.INTERNAL),
        ("/nowhere", b"", Kind.NOT_FOUND),
        ("/health/live", b"", Kind.METHOD_NOT_ALLOWED),
        ("/rerank", b"{", Kind.MALFORMED),
    ],
)
def test_an_error_is_counted_once_by_its_kind(serve: Serve, path: str, content: bytes, kind: Kind) -> None:
    """The error counter rises by one, and the counter of answers does not."""
    client = serve(FakeBackend(), max_body_bytes=1024)
    before = samples(client)
    client.post(path, content=content)
    after = samples(client)
    errors = {name for name in after if name.startswith("cerberank_errors") and after[name] != before[name]}
    assert errors == {f"cerberank_errors_total{{kind={kind.label}}}"}
    assert sum(after[name] - before[name] for name in errors) == 1
    requests = [name for name in after if name.startswith("cerberank_requests_total")]
    assert all(after[name] == before[name] for name in requests)


def test_what_is_under_way_shows_while_it_is(serve: Serve) -> None:
    """In-flight requests and their tokens rise and fall back to zero."""
    backend = FakeBackend()
    client = serve(backend)
    with ThreadPoolExecutor(3) as pool:
        with held(backend):
            body = {"question": "q", "candidates": ["a"]}
            waiting = [pool.submit(client.post, "/v1/rank", json=body) for _ in range(3)]
            wait_until(lambda: samples(client)["cerberank_requests_in_flight{}"] == 3)
            wait_until(lambda: samples(client)["cerberank_queued_tokens{}"] > 0)
        assert {future.result(20).status_code for future in waiting} == {200}
    assert samples(client)["cerberank_requests_in_flight{}"] == 0
    assert samples(client)["cerberank_queued_tokens{}"] == 0


def test_latency_buckets_are_made_for_milliseconds() -> None:
    """A rerank takes 1 to 1,000 ms: at least ten buckets lie there."""
    assert tuple(sorted(SECONDS)) == SECONDS
    assert sum(0.001 <= bound <= 1.0 for bound in SECONDS) >= 10


def test_two_apps_do_not_share_their_figures(serve: Serve) -> None:
    """Each has a registry of its own."""
    first, second = serve(FakeBackend()), serve(FakeBackend())
    first.get("/nowhere")
    assert samples(first)["cerberank_errors_total{kind=not_found}"] == 1
    assert samples(second)["cerberank_errors_total{kind=not_found}"] == 0


GENTLE = TunedSchedule(schedule=(0.0, 0.3), cost=1.0, metrics={"map": 80.0})
HARSH = TunedSchedule(schedule=(0.5, 0.5), cost=0.5, metrics={"map": 79.0, "p@1": 70.0})


def answer(**fields: Any) -> RankAnswer:
    """An answer of version 1 with two candidates."""
    known: dict[str, Any] = {
        "request_id": "r",
        "model": "m",
        "version": "1",
        "drop_schedule": (0.0, 0.3),
        "complete": True,
        "order": np.array([1, 0]),
        "scores": np.array([0.25, 0.5], dtype=np.float32),
        "stages": np.array([2, 2]),
        "heads": None,
        "truncated": np.array([True, False]),
        "tokens": 9,
        "timing": Timing(encode=1.0, queue=2.0, compute=3.0, total=6.5),
    }
    return RankAnswer(**known | fields)


@pytest.fixture
def metrics() -> Metrics:
    made = Metrics()
    made.for_model("m", "1", 3, tuned=[GENTLE, HARSH])
    return made


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """A sample of version 1."""
    return metrics.registry.get_sample_value(f"cerberank_{name}", {"model": "m", "version": "1", **labels})


@pytest.mark.parametrize(
    ("schedule", "label"), [((0.0, 0.3), "0,0.3"), ((0.5, 0.5), "0.5,0.5"), ((0.1, 0.1), "other"), ((), "other")]
)
def test_a_schedule_counts_under_its_name_or_as_other(
    metrics: Metrics, schedule: tuple[float, ...], label: str
) -> None:
    """Tuned schedules have a series each; whatever clients ask for beside them shares one."""
    metrics.answered(answer(drop_schedule=schedule))
    counts = {each: value(metrics, "schedules_total", schedule=each) for each in ("0,0.3", "0.5,0.5", "other")}
    assert counts == {each: float(each == label) for each in counts}


def test_an_expected_gain_takes_nothing_off_the_expected_loss(metrics: Metrics) -> None:
    """A counter only grows, and a metric that no tuned schedule has makes no series."""
    metrics.answered(answer(expected_loss={"map": 1.5, "p@1": -0.5, "mrr": 1.0}))
    assert value(metrics, "expected_loss_points_total", metric="map") == 1.5
    assert value(metrics, "expected_loss_points_total", metric="p@1") == 0.0
    assert value(metrics, "expected_loss_points_total", metric="mrr") is None


def test_what_an_answer_says_of_itself_is_counted(metrics: Metrics) -> None:
    """Completeness, truncation, agreement of the heads, the first candidate's score and its square, phases."""
    agreeing = np.array([[0.1, 0.2], [0.6, 0.7]], dtype=np.float32)
    partly = answer(complete=False, heads=agreeing[:, :1], scores=np.full(2, np.nan, dtype=np.float32))
    for each in (answer(heads=agreeing), partly):
        metrics.answered(each)
        metrics.sent(each)
    assert [value(metrics, "requests_total", complete=each) for each in ("true", "false")] == [1.0, 1.0]
    assert [value(metrics, "head_agreement_total", agree=each) for each in ("true", "false")] == [1.0, 0.0]
    assert value(metrics, "truncated_candidates_total") == 2.0
    assert (value(metrics, "top_score_count"), value(metrics, "top_score_squares_total")) == (1.0, 0.25)
    phases = {
        each: value(metrics, "request_phase_seconds_sum", phase=each) for each in ("encode", "queue", "rest", "total")
    }
    assert phases == pytest.approx({"encode": 0.002, "queue": 0.004, "rest": 0.001, "total": 0.013})


def test_an_answer_of_a_forgotten_version_brings_no_series_back(metrics: Metrics) -> None:
    """It would stay for ever: nothing removes the series of a version that is gone."""
    metrics.forget("m", "1")
    metrics.answered(answer())
    metrics.sent(answer())
    assert 'version="1"' not in generate_latest(metrics.registry).decode()


LABELS = "model=fake-ranker,version=7"
SCORE = st.sampled_from([0.1, 0.5, 0.9, np.nan])


@given(st.lists(st.tuples(SCORE, SCORE, SCORE), min_size=1, max_size=6))
def test_heads_agree_when_one_candidate_can_be_first_for_all(rows: list[tuple[float, ...]]) -> None:
    """Against a search over every choice of a best candidate by each head."""
    heads = np.array(rows)
    heads[np.isnan(heads[:, 0])] = np.nan
    heads[~np.isnan(heads[:, 0])] = np.nan_to_num(heads[~np.isnan(heads[:, 0])])
    seen = [row for row in heads.tolist() if not np.isnan(row[0])]
    if len(seen) < 2:
        assert heads_agree(heads) is None
        return
    best = [[place for place, row in enumerate(seen) if row[k] == max(other[k] for other in seen)] for k in range(3)]
    assert heads_agree(heads) == any(len(set(choice)) == 1 for choice in product(*best))


@pytest.mark.parametrize("heads", [None, np.array([[0.5], [0.6]]), np.array([[0.5, 0.6]])])
def test_one_head_or_one_candidate_agrees_with_nobody(heads: np.ndarray | None) -> None:
    """Such questions are not counted, lest they hide those that can tell."""
    assert heads_agree(heads) is None


def test_answers_are_counted_with_their_top_score(client: TestClient) -> None:
    """Mean and deviation follow from the series; agreement is what the answers' heads say."""
    tops, agreed = [], 0
    for number in range(12):
        body = {"question": f"q{number}", "candidates": ["a", f"b{number}", "c"], "return_heads": True}
        results = client.post("/v1/rank", json=body).json()["results"]
        tops.append(results[0]["score"])
        agreed += bool(heads_agree(np.array([result["heads"] for result in results])))
    found = samples(client)
    count, total = found[f"cerberank_top_score_count{{{LABELS}}}"], found[f"cerberank_top_score_sum{{{LABELS}}}"]
    squares = found[f"cerberank_top_score_squares_total{{{LABELS}}}"]
    assert (count, total / count) == (12, pytest.approx(np.mean(tops)))
    assert np.sqrt(squares / count - (total / count) ** 2) == pytest.approx(np.std(tops))
    assert found[f"cerberank_head_agreement_total{{agree=true,{LABELS}}}"] == agreed
    assert found[f"cerberank_head_agreement_total{{agree=false,{LABELS}}}"] == 12 - agreed
    assert 0 < agreed < 12


def test_an_answer_without_a_score_has_no_top_score(serve: Serve) -> None:
    """Nothing is invented for a question that no stage saw in time; one that stops at an exit has no heads."""
    client = serve(FakeBackend())
    client.post("/v1/rank", json={"question": "q", "candidates": ["a", "b"], "deadline_ms": 0.0001})
    found = samples(client)
    assert found[f"cerberank_head_agreement_total{{agree=true,{LABELS}}}"] == 0
    assert found[f"cerberank_head_agreement_total{{agree=false,{LABELS}}}"] == 0
    assert found[f"cerberank_requests_total{{complete=false,{LABELS}}}"] == 1


def test_a_rejection_names_the_version_until_nothing_asks_for_it() -> None:
    """The reasons are those of `Reason`; the series of versions must not pile up."""
    metrics, lifecycle = Metrics(), "cerberank_rejected_versions_total"
    metrics.lifecycle.rejected("slow", "m", "1")
    metrics.lifecycle.rejected("torn", "m", "2")
    labels = [{"reason": "slow", "model": "m", "version": "1"}, {"reason": "torn", "model": "m", "version": "2"}]
    assert [metrics.registry.get_sample_value(lifecycle, each) for each in labels] == [1.0, 1.0]
    metrics.lifecycle.forget("m", "1")
    assert [metrics.registry.get_sample_value(lifecycle, each) for each in labels] == [None, 1.0]


def test_a_store_that_comes_and_goes_is_news_once() -> None:
    """Each change is told once, so that it stands in the log once."""
    lifecycle = Metrics().lifecycle
    assert [lifecycle.reached(each) for each in (True, False, False, True)] == [False, True, False, True]


QUERY = {"model": "fake-ranker", "query": "how tall?", "documents": ["it is old", "330 metres"]}


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, str]]:
    return [getattr(record, FIELDS) for record in caplog.records if record.levelno == logging.WARNING]


def test_an_ignored_field_is_logged_once(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    """Once in each dialect, with the field's name and not its value."""
    for path in ("/v1/rerank", "/v1/rerank", "/v2/rerank", "/rerank"):
        client.post(path, json=QUERY | {"overlap_tokens": 8012}).raise_for_status()
    cohere, vllm = ({"dialect": tag, "field": "overlap_tokens"} for tag in ("cohere", "vllm"))
    assert logged(caplog) == [cohere, vllm]


def test_names_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """A client that makes up names fills neither memory nor log, and silences no other dialect."""
    ignored = Metrics().ignored
    ignored.saw("cohere", ["x" * 1000, *(f"name-{number}" for number in range(2 * MOST_NAMES))])
    assert len(logged(caplog)) == MOST_NAMES
    assert max(len(fields["field"]) for fields in logged(caplog)) == LONGEST_NAME
    ignored.saw("jina", ["late"])
    assert logged(caplog)[MOST_NAMES:] == [{"dialect": "jina", "field": "late"}]
