"""An autoscaling policy for Ray Serve, based on the offered seconds of compute. Ray's controller calls it.

Neither the number of requests nor the length of the queue measures the load. One request with 10,000 candidates is as
much work as 500 requests with 20, and a replica that refuses half of its questions may have a short queue. Therefore
every question that reaches a replica counts with its predicted compute seconds, even if it is refused. Refused ones
count for at most one second in each second (`Admission.refused_load`), because clients may repeat them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, Protocol

OFFERED_UTILISATION = "offered_utilisation"
"""The name of the metric that replicas report: offered seconds of compute per second."""


class Context(Protocol):
    """The part of `ray.serve.config.AutoscalingContext` that the policy reads."""

    @property
    def aggregated_metrics(self) -> Mapping[str, Mapping[Any, float]] | None:
        """The replicas' metrics by name and replica, each over Ray's look-back period."""


class OfferedSecondsPolicy:
    """Computes the target number of replicas; Ray applies its bounds, delays and scaling factors to it."""

    def __init__(self, utilisation: float) -> None:
        """`utilisation` is the target share of each replica's time. Raises ValueError unless it is positive."""
        if not utilisation > 0:
            raise ValueError(f"utilisation must be positive, not {utilisation}")
        self._utilisation = utilisation

    def __call__(self, context: Context) -> tuple[int, dict[str, Any]]:
        """The target number of replicas, and an empty state."""
        offered = sum((context.aggregated_metrics or {}).get(OFFERED_UTILISATION, {}).values())
        return ceil(offered / self._utilisation), {}


class OfferedRate:
    """The rate of offered seconds per second between two reports."""

    def __init__(self, now: float) -> None:
        """Start at `now` with an offered sum of 0."""
        self._now = now
        self._offered = 0.0

    def report(self, offered: float, now: float) -> float:
        """The rate since the last report; `offered` is the sum of all offered seconds. `now` must have increased.

        >>> rate = OfferedRate(10.0)
        >>> rate.report(1.5, 12.0), rate.report(1.5, 14.0)
        (0.75, 0.0)
        """
        rate = (offered - self._offered) / (now - self._now)
        self._now = now
        self._offered = offered
        return rate
