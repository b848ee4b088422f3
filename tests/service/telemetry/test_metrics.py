from __future__ import annotations

import re
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from starlette.testclient import TestClient
from tests.models.nvml import Nvml
from tests.service.conftest import Serve
from tests.service.fakes import RAISES, FakeBackend, Faults
from tests.service.observe import samples

from cerberank_models.backends.stage_contract import BackendCounts
from cerberank_models.config import DropSchedule, TunedSchedule
from cerberank_models.ranking.call import RankAnswer, Timing
from cerberank_service.errors import REFUSALS, Kind
from cerberank_service.telemetry import series
from cerberank_service.telemetry.metrics import Metrics, heads_agree
from cerberank_service.telemetry.series import FIXED_VALUES, PHASES, SERIES

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
MODEL = "model=fake-ranker"
VERSION = "version=7"


def test_all_series_exist_before_the_first_request(client: TestClient) -> None:
    """A dashboard never shows a gap, and a rate never misses the first event."""
    before = set(samples(client))
    of_alerts = {f"refused_requests_total{{reason={reason}}}" for reason in REFUSALS}
    of_alerts |= {f"errors_total{{kind={kind}}}" for kind in ("internal", "unavailable")}
    assert {f"cerberank_{name}" for name in (*of_alerts, "offered_seconds_total{outcome=refused}")} <= before
    client.post("/v1/rank", json={"question": "q", "candidates": ["a", "b"], "drop_ratio": 0.5})
    client.post("/v1/rank", json={"question": "q", "candidates": ["a"], "deadline_ms": 0.001})
    client.post("/v1/rank", json={"question": "q", "candidates": []})
    client.post("/v1/rank", content=b"{")
    client.get("/nowhere")
    assert set(samples(client)) == before


@pytest.mark.parametrize("path", [*(DEPLOY / "prometheus" / "rules").glob("*.yml"), *DEPLOY.glob("grafana/*/*.json")])
def test_what_alerts_and_dashboard_ask_for_is_declared(path: Path) -> None:
    """Each series of the service by its name, with labels that it has and, where they are fixed, values of theirs."""
    declared = {f"cerberank_{each.name}": each for each in SERIES}
    asked = re.findall(r"(cerberank_(?!proxy_)\w+?)(?:_total|_bucket|_sum|_count)?\b(?:{(.*?)})?", path.read_text())
    assert asked
    for name, selector in asked:
        for label, values in re.findall(r'(\w+)=~?\\?"(.*?)\\?"', selector):
            assert label in {*declared[name].labels, "job", "instance", "le"}, name
            if label in FIXED_VALUES:
                assert {*values.split("|")} <= {*FIXED_VALUES[label]}, name


def test_the_alert_on_descriptors_has_its_figures(client: TestClient) -> None:
    figures = samples(client)
    assert 0 < figures["process_open_fds{}"] <= figures["process_max_fds{}"]


def test_the_share_of_the_lexical_layer_is_a_part_of_the_name(metrics: Metrics) -> None:
    """Its dropped candidates are counted apart."""
    lexical_scores = np.array([np.nan, 0.5])
    metrics.answered(answer(drop_schedule=(0.1, 0.1), lexical_ratio=0.2, lexical_scores=lexical_scores))
    assert value(metrics, "schedules_total", schedule="lexical 0.2,0.1,0.1") == 1.0
    assert value(metrics, "lexical_dropped_candidates_total") == 1.0


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


@pytest.fixture(scope="module")
def limited(serve_once: Serve) -> TestClient:
    return serve_once(FakeBackend(), max_body_bytes=1024)


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        ("/v1/rank", b'{"question": "", "candidates": ["a"]}', Kind.INVALID),
        ("/v1/rank", b" " * 2000, Kind.TOO_LARGE),
        ("/v1/rank", b'{"question": "q", "candidates": ["%s"]}' % RAISES.encode(), Kind.INTERNAL),
        ("/nowhere", b"", Kind.NOT_FOUND),
        ("/rerank", b"{", Kind.MALFORMED),
    ],
)
def test_an_error_is_counted_once_by_its_kind(limited: TestClient, path: str, content: bytes, kind: Kind) -> None:
    """The error counter rises by one, and the counter of answers does not."""
    before = samples(limited)
    limited.post(path, content=content)
    after = samples(limited)
    errors = {name for name in after if name.startswith("cerberank_errors") and after[name] != before[name]}
    assert errors == {f"cerberank_errors_total{{kind={kind.label}}}"}
    assert sum(after[name] - before[name] for name in errors) == 1
    requests = [name for name in after if name.startswith("cerberank_requests_total")]
    assert all(after[name] == before[name] for name in requests)


GENTLE = TunedSchedule(schedule=(0.0, 0.3), cost=1.0, metrics={"map": 80.0})
HARSH = TunedSchedule(schedule=(0.5, 0.5), cost=0.5, metrics={"map": 79.0, "p@1": 70.0})

LEXICAL = DropSchedule(schedule=(0.1, 0.1), lexical_ratio=0.2)


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
    made.for_model("m", "1", 3, defaults=[LEXICAL], tuned=[GENTLE, HARSH])
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
    """Completeness, truncation, agreement of the heads, the first candidate's score and its square."""
    agreeing = np.array([[0.1, 0.2], [0.6, 0.7]], dtype=np.float32)
    partly = answer(complete=False, heads=agreeing[:, :1], scores=np.full(2, np.nan, dtype=np.float32))
    for each in (answer(heads=agreeing), partly):
        metrics.answered(each)
    assert [value(metrics, "requests_total", complete=each) for each in ("true", "false")] == [1.0, 1.0]
    assert [value(metrics, "head_agreement_total", agree=each) for each in ("true", "false")] == [1.0, 0.0]
    assert value(metrics, "truncated_candidates_total") == 2.0
    assert (value(metrics, "top_score_count"), value(metrics, "top_score_squares_total")) == (1.0, 0.25)


def test_an_answer_of_a_forgotten_version_brings_no_series_back(metrics: Metrics) -> None:
    """It would stay for ever: nothing removes the series of a version that is gone."""
    metrics.forget("m", "1")
    metrics.answered(answer())
    assert 'version="1"' not in generate_latest(metrics.registry).decode()


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


def test_names_are_unique_and_a_label_that_is_not_declared_is_an_error(metrics: Metrics) -> None:
    assert len({each.name for each in SERIES}) == len(SERIES)
    with pytest.raises(ValueError, match="label"):
        metrics[series.ERRORS].labels("timeout", "m")
    with pytest.raises(KeyError):
        metrics[series.BUILD_INFO]
    with pytest.raises(KeyError):
        metrics.for_model("m", "2", 3).child(series.TOKENS, "3")


def test_a_version_leaves_nothing_behind_and_takes_nothing_of_others(metrics: Metrics) -> None:
    """Removing a version removes each child with its labels, and restores what there was before it came."""

    def children() -> set[tuple[str, frozenset[tuple[str, str]]]]:
        rows = [sample for family in metrics.registry.collect() for sample in family.samples]
        return {(sample.name, frozenset(sample.labels.items())) for sample in rows}

    assert not {name for name, _ in children() if re.match(r"cerberank_(shadow|graph|vectors)_", name)}
    metrics[series.REJECTED_VERSIONS].labels("slow", "m", "1").inc()
    metrics[series.ERRORS].labels("timeout").inc()
    before = children()
    metrics.for_model("m", "2", 3, tuned=[HARSH])
    metrics.for_shadow("m", "2")
    assert children() > before
    metrics[series.REJECTED_VERSIONS].labels("torn", "m", "2").inc()
    metrics.forget_rejections("m", "2")
    metrics.forget("m", "2")
    assert children() == before
    assert metrics.registry.get_sample_value("cerberank_errors_total", {"kind": "timeout"}) == 1


def test_graphs_have_series_once_there_is_one(metrics: Metrics) -> None:
    """The counts of the backend before the test, at its warm-up, are left out."""
    version = metrics.for_model("m", "1", 3, counts=BackendCounts(padding_tokens=5))
    version.step(0, tokens=1, seconds=0.0, counts=BackendCounts(padding_tokens=5))
    assert value(metrics, "graph_hits_total") is None
    version.step(0, tokens=1, seconds=0.0, counts=BackendCounts(padding_tokens=7, graph_hits=2, graph_misses=1))
    counted = [value(metrics, f"{name}_total") for name in ("padding_tokens", "graph_hits", "graph_misses")]
    assert counted == [2, 2, 1]


RUNNING = "cerberank_engine_running{model=fake-ranker,version=7}"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_service_shows_its_gpu(serve: Serve, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """By NVML, which no failed CUDA context blocks; nothing on a processor."""
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(total=1000, free=100))
    shown = {
        name: value
        for name, value in samples(serve(FakeBackend(), device=device, backend="onnx", precision="int8")).items()
        if name.startswith("cerberank_device_")
    }
    expected = {
        "cerberank_device_memory_total_bytes{}": 1000,
        "cerberank_device_memory_used_bytes{}": 900,
        "cerberank_device_utilisation_ratio{}": 0.4,
    }
    assert shown == (expected if device == "cuda" else {})


def test_engine_and_caches_are_read_at_each_scrape(serve: Serve) -> None:
    """1 while the engine takes questions, 0 when its thread has failed; vectors only where a first stage uses them."""
    backend = FakeBackend()
    client = serve(backend)
    first = samples(client)
    assert first[RUNNING] == 1
    assert "cerberank_vector_cache_hits_total{}" not in first
    body = {"question": "q", "candidates": ["a"]}
    for _ in range(2):
        client.post("/v1/rank", json=body)
    second = samples(client)
    assert second["cerberank_token_cache_misses_total{}"] == first["cerberank_token_cache_misses_total{}"] + 2
    assert second["cerberank_token_cache_hits_total{}"] == 2
    assert second["cerberank_token_cache_bytes{}"] > 0
    backend.faults = Faults(always=True, error=SystemExit)
    assert client.post("/v1/rank", json=body).status_code == 503
    assert samples(client)[RUNNING] == 0
