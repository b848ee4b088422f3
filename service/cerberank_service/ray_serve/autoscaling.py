"""The autoscaling policy of Ray Serve by offered seconds of compute. Pure; Ray's controller calls it.

The number of requests is a poor measure: one with 10,000 candidates is as much work as 500 with 20. So is what waits: a
replica that refuses half of its questions may have a short queue. Every question that reaches a replica counts
therefore with its predicted compute seconds, refused or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, Protocol

OFFERED_UTILISATION = "offered_utilisation"
"""The name of the metric that replicas report: seconds of compute that they are offered per second."""


class Context(Protocol):
    """The part of `ray.serve.config.AutoscalingContext` that the policy reads."""

    @property
    def aggregated_metrics(self) -> Mapping[str, Mapping[Any, float]] | None:
        """The replicas' metrics by name and replica, each over Ray's look-back period."""


class OfferedSecondsPolicy:
    """The target number of replicas; Ray applies its bounds, delays and scaling factors to it."""

    def __init__(self, utilisation: float) -> None:
        """`utilisation` is the share of each replica's time that is to be used. Raises ValueError unless positive."""
        if not utilisation > 0:
            raise ValueError(f"utilisation must be positive, not {utilisation}")
        self._utilisation = utilisation

    def __call__(self, context: Context) -> tuple[int, dict[str, Any]]:
        """The target number of replicas, and an empty state."""
        offered = sum((context.aggregated_metrics or {}).get(OFFERED_UTILISATION, {}).values())
        return ceil(offered / self._utilisation), {}


class OfferedRate:
    """Offered seconds per second between two reports."""

    def __init__(self, now: float) -> None:
        """Nothing is offered before `now`."""
        self._now, self._offered = now, 0.0

    def report(self, offered: float, now: float) -> float:
        """The rate since the report before, from the sum of all offered seconds. `now` must have moved on.

        >>> rate = OfferedRate(10.0)
        >>> rate.report(1.5, 12.0), rate.report(1.5, 14.0)
        (0.75, 0.0)
        """
        rate = (offered - self._offered) / (now - self._now)
        self._now, self._offered = now, offered
        return rate
