"""The cost of a stage: in work, known from the checkpoint's shape, and in seconds, measured on this machine.

Fair scheduling shares work; admission control and `Retry-After` need seconds. A step takes a fixed time (on a GPU, the
launch of its kernels) and a time for each token. Both are fitted to many steps, and scaled by the last few, because a
machine becomes slower and faster as other processes come and go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import ceil, inf
from statistics import median_low

GUESS = 1e-4
"""Seconds per token of a whole ranker until something is measured: the value of a small CPU."""

MEMORY_BATCHES = 50
"""Half-life of a measurement, in batches that the stage runs after it."""

RECENT_BATCHES = 5
"""Batches whose median scales the predictions: three that are slower or faster change them, a single one does not."""

LEAST_SHARE = 0.01
"""Least share of `GUESS` that a stage gets. A stage without layers still pools, classifies and has call overhead."""

LEAST_BATCHES = 3.0
"""Batches, faded ones counted in part, that must be known before the two parts are told apart."""
LEAST_SPREAD = 0.05
"""Share by which the harmonic mean of the batches' tokens must be below their arithmetic mean for that."""
LEAST_SLOPE = 0.05
"""Least share of the mean seconds per token that is not taken for fixed, so that large steps are never predicted to be
free because only small ones were seen."""


class _Line:
    """`fixed + slope * tokens`, fitted to the batches of one stage.

    Weighted least squares with weights 1 / tokens (the variance grows with the tokens) and fading memory. The fitted
    times of the remembered batches always add up to the measured ones. While the batches are too alike to tell the
    parts apart, both keep their proportion; at first there is no fixed part.
    """

    def __init__(self, slope: float) -> None:
        self.fixed, self.slope = 0.0, slope
        self._batches = self._tokens = self._inverse = self._seconds = self._rates = 0.0

    def observe(self, tokens: int, seconds: float) -> None:
        faded = 0.5 ** (1.0 / MEMORY_BATCHES)
        self._batches = self._batches * faded + 1.0
        self._tokens = self._tokens * faded + tokens
        self._inverse = self._inverse * faded + 1.0 / tokens
        self._seconds = self._seconds * faded + seconds
        self._rates = self._rates * faded + seconds / tokens
        spread = 1.0 - self._batches**2 / (self._inverse * self._tokens)
        if self._batches >= LEAST_BATCHES and spread >= LEAST_SPREAD:
            self._fit(spread)
            return
        fixed, by_token = self._batches * self.fixed, self._tokens * self.slope
        share = fixed / (fixed + by_token) if fixed > 0.0 else 0.0
        self.fixed = share * self._seconds / self._batches
        self.slope = (1.0 - share) * self._seconds / self._tokens

    def _fit(self, spread: float) -> None:
        mean = self._seconds / self._tokens
        slope = (self._inverse * self._seconds - self._batches * self._rates) / (spread * self._inverse * self._tokens)
        # A negative fixed part, and a slope of nearly zero, are replaced by their bounds.
        self.slope = min(max(slope, LEAST_SLOPE * mean), mean)
        self.fixed = max(0.0, self._seconds - self.slope * self._tokens) / self._batches


class StageSpeeds:
    """Seconds of each stage's steps. Written by one thread, read by any."""

    def __init__(self, work: Sequence[float], step_tokens: int = 8192) -> None:
        """Start from `GUESS`, divided among the stages by `work` (layers by stage, not all 0); speeds are never 0."""
        self._lines = [_Line(GUESS * max(LEAST_SHARE, cost / sum(work))) for cost in work]
        self._recent: deque[float] = deque(maxlen=RECENT_BATCHES)
        self.seconds_per_token = [line.slope for line in self._lines]
        self.fixed_seconds = [line.fixed for line in self._lines]
        """Seconds of a step of each stage, however few tokens it has."""
        self.step_tokens = step_tokens
        """Tokens of a full step, which shares its fixed part among its questions."""

    def observe(self, stage: int, tokens: int, seconds: float) -> None:
        """Record that a batch of `tokens`, at least one, took `seconds`."""
        line, seconds = self._lines[stage], max(seconds, 0.0)
        line.observe(tokens, seconds)
        if (fitted := line.fixed + tokens * line.slope) > 0.0:
            self._recent.append(seconds / fitted)
        level = median_low(self._recent) if self._recent else 1.0
        self.seconds_per_token = [level * each.slope for each in self._lines]
        self.fixed_seconds = [level * each.fixed for each in self._lines]

    def alone(self, stage_tokens: Sequence[float]) -> float:
        """Predicted seconds of a question that runs alone: the tokens of each stage, and the steps that it needs."""
        return sum(
            ceil(tokens / self.step_tokens) * fixed + tokens * each
            for tokens, each, fixed in zip(stage_tokens, self.seconds_per_token, self.fixed_seconds, strict=True)
        )

    def shared(self, stage_tokens: Sequence[float]) -> float:
        """Predicted seconds that a question adds to a backlog, where it shares full steps with others."""
        return sum(self.share(stage, tokens) for stage, tokens in enumerate(stage_tokens))

    def share(self, stage: int, tokens: float) -> float:
        """Seconds of `tokens` of a stage, with their share of a full step's fixed part."""
        return tokens * (self.seconds_per_token[stage] + self.fixed_seconds[stage] / self.step_tokens)

    def step(self, stage: int, tokens: float) -> float:
        """Predicted seconds of a step of `tokens`."""
        return self.fixed_seconds[stage] + tokens * self.seconds_per_token[stage]

    def longest_step(self) -> float:
        """Seconds of the slowest full step."""
        return max(self.step(stage, self.step_tokens) for stage in range(len(self._lines)))

    def tokens_within(self, seconds: float) -> int:
        """Tokens of a step that takes at most `seconds` in every stage; 0 where the fixed part alone takes longer."""
        return int(
            min(
                max(0.0, seconds - fixed) / each if each > 0.0 else inf
                for each, fixed in zip(self.seconds_per_token, self.fixed_seconds, strict=True)
            )
        )
