"""The cost of a stage: in work, known from the checkpoint's shape, and in seconds, measured on this machine.

Fair scheduling shares work; admission control and `Retry-After` need seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

GUESS = 1e-4
"""Seconds per token of a whole ranker until something is measured: the value of a small CPU."""

MEMORY_TOKENS = 200_000
"""Half-life of a measurement, in tokens that the stage runs after it."""

LEAST_SHARE = 0.01
"""Least share of `GUESS` that a stage gets. A stage without layers still pools, classifies and has call overhead."""


class StageSpeeds:
    """Seconds per token of each stage. Written by one thread, read by any."""

    def __init__(self, work: Sequence[float]) -> None:
        """Start from `GUESS`, divided among the stages by `work` (layers by stage, not all 0); speeds are never 0."""
        self.seconds_per_token = [GUESS * max(LEAST_SHARE, cost / sum(work)) for cost in work]
        self._tokens = [0.0] * len(work)
        self._seconds = [0.0] * len(work)

    def observe(self, stage: int, tokens: int, seconds: float) -> None:
        """Record that a batch of `tokens` took `seconds`. Batches are weighted by their tokens."""
        faded = 0.5 ** (tokens / MEMORY_TOKENS)
        self._tokens[stage] = self._tokens[stage] * faded + tokens
        self._seconds[stage] = self._seconds[stage] * faded + max(seconds, 0.0)
        self.seconds_per_token[stage] = self._seconds[stage] / self._tokens[stage]

    def seconds(self, stage_tokens: Sequence[float]) -> float:
        """Predicted seconds of computing `stage_tokens`, the tokens of each stage."""
        return sum(tokens * each for tokens, each in zip(stage_tokens, self.seconds_per_token, strict=True))

    def longest_step(self, tokens: int) -> float:
        """Seconds of the slowest step of `tokens`."""
        return tokens * max(self.seconds_per_token)
