"""What a stage costs: in work, known from the checkpoint's shape, and in seconds, measured on this machine.

Work is what questions share fairly; seconds tell when a question will be done.
"""

from __future__ import annotations

from collections.abc import Sequence

GUESS = 1e-4
"""Seconds per token of a whole ranker before anything was measured: a small CPU's."""

MEMORY_TOKENS = 200_000
"""Measurements lose half of their weight for every so many tokens that a stage runs after them."""

LEAST_SHARE = 0.01
"""Of the guess, for a stage that runs no layer (heads of none): it still pools, classifies and is called."""


class StageSpeeds:
    """Seconds per token of each stage. Written by one thread, read by any."""

    def __init__(self, work: Sequence[float]) -> None:
        """A guess, shared out by `work` (layers by stage, not all 0), until something is observed; never 0."""
        self.seconds_per_token = [GUESS * max(LEAST_SHARE, cost / sum(work)) for cost in work]
        self._tokens = [0.0] * len(work)
        self._seconds = [0.0] * len(work)

    def observe(self, stage: int, tokens: int, seconds: float) -> None:
        """A batch of `tokens` took `seconds`. Batches count by their size, so that tiny ones do not mislead."""
        faded = 0.5 ** (tokens / MEMORY_TOKENS)
        self._tokens[stage] = self._tokens[stage] * faded + tokens
        self._seconds[stage] = self._seconds[stage] * faded + max(seconds, 0.0)
        self.seconds_per_token[stage] = self._seconds[stage] / self._tokens[stage]

    def seconds(self, stage_tokens: Sequence[float]) -> float:
        """Predicted seconds for so many tokens by stage."""
        return sum(tokens * each for tokens, each in zip(stage_tokens, self.seconds_per_token, strict=True))

    def longest_step(self, tokens: int) -> float:
        """Seconds of the slowest step of `tokens`."""
        return tokens * max(self.seconds_per_token)
