from __future__ import annotations

import pytest

from cerberank_service.telemetry.metrics import Metrics


def test_only_announced_reasons_are_counted() -> None:
    """The label stays bounded: what was announced exists at zero from the start, anything else is a fault of ours."""
    metrics = Metrics(reasons=["torn", "slow"])
    metrics.lifecycle.rejected("slow")
    found = [
        metrics.registry.get_sample_value("cerberank_rejected_versions_total", {"reason": reason})
        for reason in ("torn", "slow", "other")
    ]
    assert found == [0.0, 1.0, None]
    with pytest.raises(KeyError):
        metrics.lifecycle.rejected("other")


def test_a_store_that_comes_and_goes_is_news_once() -> None:
    """Each change is told once, so that it stands in the log once."""
    lifecycle = Metrics().lifecycle
    assert [lifecycle.reached(each) for each in (True, False, False, True)] == [False, True, False, True]
