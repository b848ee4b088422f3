"""Who gets in: by tokens and predicted seconds, never by the number of requests. Pure; the caller holds a lock.

The order in which the scheduler will serve is imagined with a fair clock of the same kind (`fairness`): a question
waits for those whose fair ends come before its own. That makes the prediction short for small questions and the whole
backlog for large ones; it cannot know who will come later.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

from cerberank_service.engine.cost import StageSpeeds
from cerberank_service.engine.fairness import FairClock
from cerberank_service.engine.objective import MARGIN, RESERVE, UNLIMITED, Objective
from cerberank_service.engine.scheduler import OLDEST_AFTER
from cerberank_service.errors import Kind, ServiceError

LAST_PRIORITY = 999
HALVING = 100
"""A priority that many steps lower halves a question's share."""

LONGEST_RETRY = 60

HELD_UP = 1.0 + 1.0 / OLDEST_AFTER
"""Times that everything takes longer, because the scheduler gives the oldest question a share out of turn."""


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
    fair_end: float
    """For comparison alone."""
    latest: float = inf
    """When it is to be answered at the latest, in seconds on the engine's clock, with a margin for errors."""
    limit: float = inf
    """The same without the margin."""


class Admission:
    """The questions that were accepted and are not answered."""

    def __init__(self, most_tokens: int, speeds: StageSpeeds, objective: Objective = UNLIMITED) -> None:
        """`most_tokens` bounds the backlog, but for the last question that found room; `objective` its wait."""
        self._most, self._speeds, self._objective = most_tokens, speeds, objective
        self._claims: dict[int, Claim] = {}
        self._clock = FairClock()
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
        end = self._clock.end_of(seconds, weight)
        ahead = sum(claim.seconds for claim in self._claims.values() if claim.fair_end <= end)
        return HELD_UP * (ahead + seconds) - seconds + self._speeds.longest_step(step_tokens)

    def check_objective(
        self, stage_tokens: tuple[float, ...], weight: float, *, now: float, received: float | None, step_tokens: int
    ) -> None:
        """Raises ServiceError (503) when a question, or one that was accepted before, would be answered too late.

        `received` is when it came, None for one with a deadline, which is answered by then anyhow. A question that has
        the engine to itself is never refused.
        """
        if not self._claims or self._objective is UNLIMITED:
            return
        seconds = self._speeds.seconds(stage_tokens)
        done = now + seconds + self.wait(seconds, weight, step_tokens)
        late = 0.0
        if received is not None:
            late = done - received - RESERVE * self._objective.limit(seconds, weight)
        late = max(late, self._latest_of_those_behind(self._clock.end_of(seconds, weight), now, done))
        if late > 0.0:
            raise ServiceError(
                Kind.UNAVAILABLE,
                "it, or a question that was accepted before, would be answered too late; try again later",
                retry_after=retry_after(max(late, self.seconds / 2)),
            )

    def _latest_of_those_behind(self, fair_end: float, now: float, done: float) -> float:
        """Seconds by which a question that ends at `done` makes others late, at most; those that are late are lost."""
        late = 0.0
        behind = (claim for claim in self._claims.values() if claim.fair_end > fair_end)
        for claim in sorted(behind, key=lambda claim: claim.fair_end):
            done += HELD_UP * claim.seconds
            if now + claim.seconds <= claim.limit:
                late = max(late, done - claim.latest)
        return late

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

    def enter(
        self, key: int, tokens: int, stage_tokens: tuple[float, ...], weight: float, *, received: float | None = None
    ) -> None:
        """A question was accepted; one without a deadline has the objective's time from when it was `received`."""
        seconds = self._speeds.seconds(stage_tokens)
        claim = Claim(tokens, weight, seconds, self._clock.enter(key, seconds, weight))
        if received is not None:
            limit = self._objective.limit(seconds, weight)
            claim.latest, claim.limit = received + MARGIN * limit, received + limit
        self._claims[key] = claim
        self.tokens += tokens

    def ran(self, key: int, stage: int, tokens: int) -> None:
        """So many of its tokens went through `stage`."""
        seconds = tokens * self._speeds.seconds_per_token[stage]
        self._clock.serve(seconds)
        if claim := self._claims.get(key):
            claim.seconds = max(0.0, claim.seconds - seconds)

    def leave(self, key: int, *, answered: bool) -> None:
        """A question was answered in full, or given up."""
        self.tokens -= self._claims.pop(key).tokens
        if not answered:
            self._clock.leave(key)
        if not self._claims:
            self._clock.clear()
