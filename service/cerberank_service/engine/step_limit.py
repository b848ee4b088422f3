"""The largest step that is expected to fit into memory. Pure.

Memory is short for a while when another process or version takes some of it, or for good when the setting is too large.
The limit is halved when memory runs out, and doubled again after many steps that fitted; each time that memory runs
out, twice as many are asked for before the next attempt.
"""

from __future__ import annotations

LEAST_TOKENS = 128
"""Steps are never limited to fewer tokens."""
CALM_STEPS = 32
"""Steps near the limit that must fit before it is doubled, after memory ran out for the first time."""
MOST_CALM_STEPS = 1024
"""The most of them: a failed attempt costs about as much as a step."""


class StepLimit:
    """Tokens of the largest step."""

    def __init__(self, most: int) -> None:
        """Start at `most`, which is never exceeded."""
        self._most = self.tokens = most
        self._calm = 0
        self._needed = CALM_STEPS // 2

    def ran_out(self, tokens: int) -> None:
        """Record that memory ran out in a step of `tokens`."""
        self.tokens = min(self.tokens, max(LEAST_TOKENS, tokens // 2))
        self._calm, self._needed = 0, min(MOST_CALM_STEPS, 2 * self._needed)

    def fitted(self, tokens: int) -> None:
        """Record a step of `tokens` that ran; one of at most half of the limit says nothing about a larger one."""
        if self.tokens == self._most or 2 * tokens <= self.tokens:
            return
        self._calm += 1
        if self._calm == self._needed:
            self.tokens, self._calm = min(self._most, 2 * self.tokens), 0
