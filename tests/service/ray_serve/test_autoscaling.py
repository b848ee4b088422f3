from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_service.ray_serve.autoscaling import OFFERED_UTILISATION, OfferedSecondsPolicy


@dataclass
class Reported:
    """The figures that replicas reported."""

    aggregated_metrics: dict[str, dict[str, float]] | None


@given(st.lists(st.integers(0, 1000), max_size=8), st.sampled_from([0.25, 0.5, 1.0]))
def test_replicas_are_as_few_as_hold_what_is_offered(eighths: list[int], utilisation: float) -> None:
    """No replica is used for more than its share of the time; one fewer would not do."""
    offered = [eighth / 8 for eighth in eighths]
    metrics = {OFFERED_UTILISATION: {str(replica): seconds for replica, seconds in enumerate(offered)}}
    wanted, _ = OfferedSecondsPolicy(utilisation)(Reported(metrics))
    assert wanted * utilisation >= sum(offered) > (wanted - 1) * utilisation


@pytest.mark.parametrize("metrics", [None, {}, {"other": {"a": 5.0}}])
def test_nothing_reported_asks_for_nothing(metrics: dict[str, dict[str, float]] | None) -> None:
    """Ray's least number of replicas stands; a start has no figures yet."""
    assert OfferedSecondsPolicy(100)(Reported(metrics)) == (0, {})


def test_a_target_that_divides_by_nought_is_refused() -> None:
    """It is refused when the configuration is read, not when load comes."""
    with pytest.raises(ValueError, match="must be positive"):
        OfferedSecondsPolicy(0)
