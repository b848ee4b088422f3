"""The autoscaling policy of Ray Serve by waiting tokens. Pure; Ray's controller calls it.

The number of requests is a poor measure: one with 10,000 candidates is as much work as 500 with 20.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, Protocol

QUEUED_TOKENS = "queued_tokens"
"""The name of the metric that replicas report."""


class Context(Protocol):
    """The part of `ray.serve.config.AutoscalingContext` that the policy reads."""

    @property
    def aggregated_metrics(self) -> Mapping[str, Mapping[Any, float]] | None:
        """The replicas' metrics by name and replica, each over Ray's look-back period."""


class QueuedTokensPolicy:
    """The target number of replicas; Ray applies its bounds, delays and scaling factors to it."""

    def __init__(self, tokens_per_replica: float) -> None:
        """`tokens_per_replica` may wait at each. Raises ValueError unless it is positive."""
        if not tokens_per_replica > 0:
            raise ValueError(f"tokens_per_replica must be positive, not {tokens_per_replica}")
        self._tokens_per_replica = tokens_per_replica

    def __call__(self, context: Context) -> tuple[int, dict[str, Any]]:
        """The target number of replicas, and an empty state."""
        waiting = sum((context.aggregated_metrics or {}).get(QUEUED_TOKENS, {}).values())
        return ceil(waiting / self._tokens_per_replica), {}
