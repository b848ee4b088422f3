"""Who gets in: by tokens and predicted seconds, never by the number of requests. Pure; the caller holds a lock.

A question waits at most for what others would get beside it while it gets its own share (`fairness`): at equal
weights, of every other question no more than it needs itself. That makes the prediction short for small questions
and the whole backlog for large ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from cerberank_service.cost import StageSpeeds
from cerberank_service.errors import Kind, ServiceError

LAST_PRIORITY = 999
HALVING = 100
"""A priority that many steps lower halves a question's share."""

LONGEST_RETRY = 60


def weight_of(priority: int) -> float:
    """The share that a question gets beside one of priority 0.

    >>> [weight_of(priority) for priority in (0, 100, 200)]
    [1.0, 0.5, 0.25]
    """
    return float(2.0 ** (-priority / HALVING))


def retry_after(seconds: float) -> int:
    """Whole seconds, at least one and at most a minute.

    >>> [retry_after(seconds) for seconds in (0.0, 1.2, 1e9)]
    [1, 2, 60]
    """
    return max(1, min(ceil(seconds), LONGEST_RETRY))


@dataclass(slots=True)
class Claim:
    """What an accepted question has yet to get."""

    tokens: int
    """Of all its pairs."""
    weight: float
    seconds: float


class Admission:
    """The questions that were accepted and are not answered."""

    def __init__(self, most_tokens: int, speeds: StageSpeeds) -> None:
        """`most_tokens` bounds the backlog, but for the last question that found room."""
        self._most, self._speeds = most_tokens, speeds
        self._claims: dict[int, Claim] = {}
        self.tokens = 0

    @property
    def seconds(self) -> float:
        """Predicted seconds until all that was accepted is answered."""
        return sum(claim.seconds for claim in self._claims.values())

    def check_room(self, priority: int) -> None:
        """Raises ServiceError (503) when the backlog is full; its last half is kept for higher priorities."""
        if self._claims and self.tokens > self._most * (1.0 - 0.5 * priority / LAST_PRIORITY):
            raise ServiceError(
                Kind.UNAVAILABLE, "too much work is queued; try again later", retry_after=retry_after(self.seconds / 2)
            )

    def wait(self, seconds: float, weight: float, step_tokens: int) -> float:
        """Seconds that others get before a question of `seconds` is done; 0 when there are none."""
        if not self._claims:
            return 0.0
        ahead = sum(min(claim.seconds, seconds * claim.weight / weight) for claim in self._claims.values())
        return ahead + self._speeds.longest_step(step_tokens)

    def check_deadline(
        self, stage_tokens: tuple[float, ...], weight: float, left: float | None, step_tokens: int
    ) -> None:
        """Raises ServiceError (503) when the first stage cannot end within `left` seconds because of others.

        A question that has the engine to itself is never refused: it gets what can be done in the time.
        """
        if left is None or not self._claims:
            return
        first = self._speeds.seconds((stage_tokens[0], *[0.0] * (len(stage_tokens) - 1)))
        wait = self.wait(self._speeds.seconds(stage_tokens), weight, step_tokens)
        if wait + first > left:
            raise ServiceError(
                Kind.UNAVAILABLE,
                f"the first stage would be done in {wait + first:.3f} seconds, after the deadline; try again later",
                retry_after=retry_after(wait),
            )

    def enter(self, key: int, tokens: int, stage_tokens: tuple[float, ...], weight: float) -> None:
        """A question was accepted."""
        self._claims[key] = Claim(tokens, weight, self._speeds.seconds(stage_tokens))
        self.tokens += tokens

    def ran(self, key: int, stage: int, tokens: int) -> None:
        """So many of its tokens went through `stage`."""
        if claim := self._claims.get(key):
            claim.seconds = max(0.0, claim.seconds - tokens * self._speeds.seconds_per_token[stage])

    def leave(self, key: int) -> None:
        """A question was answered."""
        self.tokens -= self._claims.pop(key).tokens
