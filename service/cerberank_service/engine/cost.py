"""The cost of each stage in seconds, measured while it runs and used to predict further steps.

Admission control and `Retry-After` need these predictions; the fair scheduler needs only the stages' relative work,
which is known from the checkpoint's shape. A step takes a fixed time (on a GPU, for launching kernels) and a time per
token. Both are fitted to many steps. The predictions are then scaled by the last few steps, because other processes
make the machine slower or faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import ceil, inf
from statistics import median_low

GUESS = 1e-4
"""Seconds per token of a whole ranker before the first measurement: the value of a small CPU."""

MEMORY_BATCHES = 50
"""Half-life of a measurement, in batches that the stage runs after it."""

RECENT_BATCHES = 5
"""Number of latest batches whose median scales the predictions, so that a single slow batch does not change them."""

LEAST_SHARE = 0.01
"""Least share of `GUESS` for a stage. Even a stage without layers pools, classifies and has the overhead of a call."""

LEAST_BATCHES = 3.0
"""Number of batches, with older ones counted in part, before the fixed time and the time per token are fitted."""
LEAST_SPREAD = 0.05
"""Share by which the harmonic mean of the batches' tokens must be below their arithmetic mean before the fit."""
LEAST_SLOPE = 0.05
"""Least time per token, as a share of the mean seconds per token. Without it, small batches alone could lead to the
prediction that the tokens of large steps cost nothing."""


class _Line:
    """The seconds of a batch, `fixed + slope * tokens`, fitted to the batches of one stage.

    The fit is weighted least squares, with weights 1 / tokens because the variance grows with the tokens, and older
    batches count less. The fitted times of the remembered batches always add up to the measured times. While the
    batches are too similar for a fit, the two parts keep their proportion; at first there is no fixed part.
    """

    def __init__(self, slope: float) -> None:
        self.fixed = 0.0
        self.slope = slope
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
    """The measured speeds of each stage's steps. One thread writes them, any thread reads them."""

    def __init__(self, work: Sequence[float], step_tokens: int = 8192) -> None:
        """Start from `GUESS`, divided among the stages by `work` (layers by stage, not all 0); no speed is ever 0."""
        self._lines = [_Line(GUESS * max(LEAST_SHARE, cost / sum(work))) for cost in work]
        self._recent: deque[float] = deque(maxlen=RECENT_BATCHES)
        self.seconds_per_token = [line.slope for line in self._lines]
        self.fixed_seconds = [line.fixed for line in self._lines]
        """Seconds of a step of each stage, however few tokens it has."""
        self.step_tokens = step_tokens
        """Tokens of a full step; its questions share its fixed time."""

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
        """Predicted seconds of a question that runs alone, with the fixed times of all its steps."""
        return sum(
            ceil(tokens / self.step_tokens) * fixed + tokens * each
            for tokens, each, fixed in zip(stage_tokens, self.seconds_per_token, self.fixed_seconds, strict=True)
        )

    def shared(self, stage_tokens: Sequence[float]) -> float:
        """Predicted seconds that a question adds to a backlog, if it shares full steps with other questions."""
        return sum(self.share(stage, tokens) for stage, tokens in enumerate(stage_tokens))

    def share(self, stage: int, tokens: float) -> float:
        """Seconds of `tokens` of a stage, with their share of a full step's fixed time."""
        return tokens * (self.seconds_per_token[stage] + self.fixed_seconds[stage] / self.step_tokens)

    def step(self, stage: int, tokens: float) -> float:
        """Predicted seconds of a step of `tokens`."""
        return self.fixed_seconds[stage] + tokens * self.seconds_per_token[stage]

    def longest_step(self) -> float:
        """Seconds of the slowest full step."""
        return max(self.step(stage, self.step_tokens) for stage in range(len(self._lines)))

    def tokens_within(self, seconds: float) -> int:
        """Tokens of a step that takes at most `seconds` in every stage; 0 if the fixed time alone is longer."""
        return int(
            min(
                max(0.0, seconds - fixed) / each if each > 0.0 else inf
                for each, fixed in zip(self.seconds_per_token, self.fixed_seconds, strict=True)
            )
        )
