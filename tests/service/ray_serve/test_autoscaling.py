from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_service.ray_serve.autoscaling import QUEUED_TOKENS, QueuedTokensPolicy


@dataclass
class Reported:
    """What replicas reported."""

    aggregated_metrics: dict[str, dict[str, float]] | None


@given(st.lists(st.integers(0, 10**6), max_size=8), st.integers(1, 10**5))
def test_replicas_are_as_few_as_hold_what_waits(waiting: list[int], tokens: int) -> None:
    """No replica has more than its tokens, one fewer would not do."""
    metrics = {QUEUED_TOKENS: {str(replica): float(count) for replica, count in enumerate(waiting)}}
    wanted, _ = QueuedTokensPolicy(tokens)(Reported(metrics))
    assert wanted * tokens >= sum(waiting) > (wanted - 1) * tokens


@pytest.mark.parametrize("metrics", [None, {}, {"other": {"a": 5.0}}])
def test_nothing_reported_asks_for_nothing(metrics: dict[str, dict[str, float]] | None) -> None:
    """Ray's least number of replicas stands; a start has no figures yet."""
    assert QueuedTokensPolicy(100)(Reported(metrics)) == (0, {})


def test_a_target_that_divides_by_nought_is_refused() -> None:
    """When the configuration is read, not when load comes."""
    with pytest.raises(ValueError, match="must be positive"):
        QueuedTokensPolicy(0)
