"""Admission control by tokens and predicted seconds, never by the number of requests. Pure; the caller holds a lock.

The wait is predicted with a fair clock like the scheduler's (`fairness`): a question waits for those whose fair ends
come before its own. The predicted wait is therefore short for a small question and close to the whole backlog for a
large one. Later arrivals cannot be predicted.
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
"""Difference of priorities that halves a question's share."""

LONGEST_RETRY = 60

OLDEST_FACTOR = 1.0 + 1.0 / OLDEST_AFTER
"""Factor by which every wait is longer because the scheduler reserves a share of the work for the oldest question."""


def weight_of(priority: int) -> float:
    """The weight of a question, relative to one of priority 0.

    >>> [weight_of(priority) for priority in (0, 100, 200)]
    [1.0, 0.5, 0.25]
    """
    return float(2.0 ** (-priority / HALVING))


def retry_after(seconds: float) -> int:
    """The value of `Retry-After`: whole seconds, at least one and at most a minute.

    >>> [retry_after(seconds) for seconds in (0.0, 1.2, 1e9)]
    [1, 2, 60]
    """
    return max(1, min(ceil(seconds), LONGEST_RETRY))


@dataclass(slots=True)
class Pending:
    """The outstanding work of an accepted question."""

    tokens: int
    """Tokens of all its pairs."""
    weight: float
    seconds: float
    """Predicted compute that is left, in steps that it shares with others."""
    fair_end: float
    """Virtual time, meaningful only in comparisons."""
    latest: float = inf
    """Latest time of its answer, in seconds on the engine's clock, with a safety margin."""
    limit: float = inf
    """The same without the safety margin."""


class Admission:
    """Tracks the questions that were accepted and are not answered yet, and decides about new ones."""

    def __init__(self, most_tokens: int, speeds: StageSpeeds, objective: Objective = UNLIMITED) -> None:
        """`most_tokens` bounds the backlog (the last accepted question may exceed it), `objective` the latency."""
        self._most, self._speeds, self._objective = most_tokens, speeds, objective
        self._pending: dict[int, Pending] = {}
        self._clock = FairClock()
        self.tokens = 0

    @property
    def seconds(self) -> float:
        """Predicted seconds until all accepted questions are answered."""
        return sum(pending.seconds for pending in self._pending.values())

    def check_room(self, priority: int) -> None:
        """Raises ServiceError (503) when the backlog is full; its second half is reserved for higher priorities."""
        if self._pending and self.tokens > self._most * (1.0 - 0.5 * priority / LAST_PRIORITY):
            raise ServiceError(
                Kind.UNAVAILABLE, "too much work is queued; try again later", retry_after=retry_after(self.seconds / 2)
            )

    def wait(self, stage_tokens: tuple[float, ...], weight: float) -> float:
        """Predicted seconds that others' work delays a question with these tokens by stage; 0 without others."""
        if not self._pending:
            return 0.0
        seconds = self._speeds.shared(stage_tokens)
        end = self._clock.end_of(seconds, weight)
        ahead = sum(pending.seconds for pending in self._pending.values() if pending.fair_end <= end)
        return OLDEST_FACTOR * (ahead + seconds) - seconds + self._speeds.longest_step()

    def check_objective(
        self, stage_tokens: tuple[float, ...], weight: float, *, now: float, received: float, deadline: float = inf
    ) -> None:
        """Raises ServiceError (503) when this question, or an accepted one, would miss the objective.

        `received` is the time of arrival. An idle engine refuses no question.
        """
        if not self._pending or self._objective is UNLIMITED:
            return
        done = now + self._speeds.alone(stage_tokens) + self.wait(stage_tokens, weight)
        late = done - received - RESERVE * self._limit(stage_tokens, weight, deadline - received)
        fair_end = self._clock.end_of(self._speeds.shared(stage_tokens), weight)
        late = max(late, self._worst_lateness(fair_end, now, done))
        if late > 0.0:
            raise ServiceError(
                Kind.UNAVAILABLE,
                "it, or a question that was accepted before, would be answered too late; try again later",
                retry_after=retry_after(max(late, self.seconds / 2)),
            )

    def _limit(self, stage_tokens: tuple[float, ...], weight: float, left: float) -> float:
        """Seconds that the objective gives a question; infinite for one that is answered by a deadline before that.

        `left` are the seconds from its arrival to its deadline.
        """
        limit = self._objective.limit(self._speeds.alone(stage_tokens), weight)
        return inf if left <= limit else limit

    def _worst_lateness(self, fair_end: float, now: float, done: float) -> float:
        """Largest delay, in seconds beyond their limits, that a question that ends at `done` causes for those behind.

        Questions that will miss their limits in any case are not counted.
        """
        late = 0.0
        behind = (pending for pending in self._pending.values() if pending.fair_end > fair_end)
        for pending in sorted(behind, key=lambda pending: pending.fair_end):
            done += OLDEST_FACTOR * pending.seconds
            if now + pending.seconds <= pending.limit:
                late = max(late, done - pending.latest)
        return late

    def check_deadline(self, stage_tokens: tuple[float, ...], weight: float, left: float) -> None:
        """Raises ServiceError (503) when the backlog keeps the question's first stage from ending in `left` seconds.

        An idle engine refuses no question: it answers with what can be scored in that time.
        """
        if not self._pending:
            return
        begins = next((stage for stage, tokens in enumerate(stage_tokens) if tokens), 0)
        first = self._speeds.alone([tokens * (stage == begins) for stage, tokens in enumerate(stage_tokens)])
        wait = self.wait(stage_tokens, weight)
        if wait + first > left:
            raise ServiceError(
                Kind.UNAVAILABLE,
                f"the first stage would be done in {wait + first:.3f} seconds, after the deadline; try again later",
                retry_after=retry_after(wait),
            )

    def enter(
        self,
        key: int,
        tokens: int,
        stage_tokens: tuple[float, ...],
        weight: float,
        *,
        received: float = 0.0,
        deadline: float = inf,
    ) -> None:
        """Add an accepted question, which came at `received`."""
        seconds = self._speeds.shared(stage_tokens)
        limit = self._limit(stage_tokens, weight, deadline - received)
        self._pending[key] = Pending(
            tokens,
            weight,
            seconds,
            self._clock.enter(key, seconds, weight),
            latest=received + MARGIN * limit,
            limit=received + limit,
        )
        self.tokens += tokens

    def ran(self, key: int, stage: int, tokens: int) -> None:
        """Record that `tokens` of the question `key` went through `stage`."""
        seconds = self._speeds.share(stage, tokens)
        self._clock.serve(seconds)
        if pending := self._pending.get(key):
            pending.seconds = max(0.0, pending.seconds - seconds)

    def leave(self, key: int, *, answered: bool) -> None:
        """Remove a question that was answered in full, or abandoned; one that has left already is no error."""
        if (pending := self._pending.pop(key, None)) is None:
            return
        self.tokens -= pending.tokens
        if not answered:
            self._clock.leave(key)
        if not self._pending:
            self._clock.clear()
