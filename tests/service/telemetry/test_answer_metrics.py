from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from prometheus_client import generate_latest

from cerberank_models.config import TunedSchedule
from cerberank_service.call import RankAnswer, Timing
from cerberank_service.telemetry.metrics import Metrics

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
        "timing": Timing(encode=1.0, queue=2.0, compute=3.0, total=6.0),
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
    metrics.answered(answer(heads=agreeing))
    metrics.answered(answer(complete=False, heads=agreeing[:, :1], scores=np.full(2, np.nan, dtype=np.float32)))
    assert [value(metrics, "requests_total", complete=each) for each in ("true", "false")] == [1.0, 1.0]
    assert [value(metrics, "head_agreement_total", agree=each) for each in ("true", "false")] == [1.0, 0.0]
    assert value(metrics, "truncated_candidates_total") == 2.0
    assert (value(metrics, "top_score_count"), value(metrics, "top_score_squares_total")) == (1.0, 0.25)
    phases = {each: value(metrics, "request_phase_seconds_sum", phase=each) for each in ("encode", "queue", "total")}
    assert phases == pytest.approx({"encode": 0.002, "queue": 0.004, "total": 0.012})


def test_an_answer_of_a_forgotten_version_brings_no_series_back(metrics: Metrics) -> None:
    """It would stay for ever: nothing removes the series of a version that is gone."""
    metrics.forget("m", "1")
    metrics.answered(answer())
    assert 'version="1"' not in generate_latest(metrics.registry).decode()
