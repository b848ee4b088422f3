"""How many replicas Ray Serve should run: as many as the waiting tokens need. Pure; Ray calls it in its controller.

Requests are a poor measure here: one of 10,000 candidates is as much work as 500 of 20.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, Protocol

QUEUED_TOKENS = "queued_tokens"
"""The name under which replicas report them."""


class Context(Protocol):
    """What is read of `ray.serve.config.AutoscalingContext`."""

    @property
    def aggregated_metrics(self) -> Mapping[str, Mapping[Any, float]] | None:
        """What replicas reported, by name and replica, each over Ray's look-back period."""


class QueuedTokensPolicy:
    """Ray applies bounds, delays and scaling factors to what it returns."""

    def __init__(self, tokens_per_replica: float) -> None:
        """`tokens_per_replica` may wait at each. Raises ValueError unless it is positive."""
        if not tokens_per_replica > 0:
            raise ValueError(f"tokens_per_replica must be positive, not {tokens_per_replica}")
        self._tokens_per_replica = tokens_per_replica

    def __call__(self, context: Context) -> tuple[int, dict[str, Any]]:
        """The replicas that are wanted, and no state."""
        waiting = sum((context.aggregated_metrics or {}).get(QUEUED_TOKENS, {}).values())
        return ceil(waiting / self._tokens_per_replica), {}
