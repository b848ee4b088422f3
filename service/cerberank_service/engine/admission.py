"""Admission control: a new question is refused when its predicted time in the queue is too long.

A question's time in the queue is its predicted end minus the time that it would take alone. The prediction uses a fair
clock like the scheduler's (`fairness`): a question waits for all pending questions whose fair ends come before its own.
A small question therefore waits for little more than one step of the large ones, a large question for nearly the whole
backlog.

Smaller questions that arrive later may overtake a question. They cannot be predicted one by one. As long as no question
is refused, they are ignored. Under overload the predicted end is delayed in proportion to the work that recently
arrived in smaller questions. The predicted end is at most doubled, because the scheduler reserves half of the work for
the oldest question.

This module does no input or output and has no clock; the caller holds a lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, floor, inf, log2

from cerberank_service.engine.cost import StageSpeeds
from cerberank_service.engine.fairness import FairClock
from cerberank_service.engine.scheduler import OLDEST_AFTER
from cerberank_service.errors import Kind, Refusal, ServiceError

MOST_TOKENS = 4_000_000
"""Limit of the tokens of accepted, unanswered questions, which bounds memory. Beyond it new questions are refused."""
MEMORY_SECONDS = 20.0
"""Time constant with which offered work is forgotten: a minute after an overload it no longer matters."""
OVERTAKING = 0.25
"""Work that arrives in smaller questions, as a share of the served work, at which a question is predicted to end twice
as late. Measured at three times the capacity: with 0.5, 1.8 to 3.6 % of the mixed questions waited more than 1.1 times
the bound; with 0.25, 1.6 to 2.3 % (B11 3H1, four seeds of the arrivals of `python -m tools.overload`)."""
LAST_PRIORITY = 999
HALVING = 100
"""Difference of priorities that halves a question's share."""
LONGEST_RETRY = 60


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """The cost and the times of a question that is offered; times are on the engine's clock."""

    tokens: int
    """Tokens of all its pairs."""
    stage_tokens: tuple[float, ...]
    """Expected tokens of each stage."""
    weight: float = 1.0
    received: float = 0.0
    """Time of arrival."""
    deadline: float = inf


SMALLER = 2
"""A question counts as smaller than another if its `_size` is lower by more than this, which means that it costs at
most 1/sqrt(2) as much. The gap keeps questions of about equal cost, whose sizes may differ by rounding, from counting
as smaller than each other."""


def _size(seconds: float) -> int:
    """The logarithm of a question's cost: four sizes more are twice the cost."""
    return floor(4.0 * log2(max(seconds, 1e-9)))


@dataclass(slots=True)
class Pending:
    """The outstanding work of an accepted question."""

    tokens: int
    seconds: float
    """Predicted seconds of computation that remain, in steps that the question shares with others."""
    fair_end: float
    """The fair end in virtual time, meaningful only in comparisons."""
    reserved: bool = False
    """True once the question had reserved work: it then leaves the clock when answered, as in the scheduler."""


class Admission:
    """Tracks accepted questions until they are answered, and decides whether new ones are accepted."""

    def __init__(self, speeds: StageSpeeds, queue_seconds: float = inf, most_tokens: int = MOST_TOKENS) -> None:
        """`queue_seconds` bounds the time in the queue; above `most_tokens` pending tokens no question is accepted."""
        self._speeds, self._bound, self._most = speeds, queue_seconds, most_tokens
        self._pending: dict[int, Pending] = {}
        self._clock = FairClock()
        self._accepted = self._refused = self._faded = 0.0
        self._offered: dict[int, float] = {}
        """Seconds of accepted and refused questions together, by `_size`."""
        self.tokens = 0

    @property
    def seconds(self) -> float:
        """Predicted seconds until all accepted questions are answered."""
        return sum(pending.seconds for pending in self._pending.values())

    def wait(self, stage_tokens: tuple[float, ...], weight: float) -> float:
        """Predicted seconds by which pending work delays a question with these tokens by stage; 0 without any work.

        Pending questions with later fair ends delay it too: by the step that is running, and by the share of the work
        that the scheduler reserves for the oldest question, but never by more than their remaining work.
        """
        own = self._speeds.shared(stage_tokens)
        end = self._clock.end_of(own, weight)
        ahead = sum(pending.seconds for pending in self._pending.values() if pending.fair_end <= end)
        behind = self.seconds - ahead
        return ahead + min(behind, (ahead + own) / OLDEST_AFTER + self._speeds.longest_step())

    def check_room(self) -> None:
        """Raises ServiceError (503) while more tokens are pending than the limit allows."""
        if self._pending and self.tokens > self._most:
            raise ServiceError(
                Kind.UNAVAILABLE,
                "too much work is queued; try again later",
                retry_after=retry_after(self.seconds * (1.0 - self._most / self.tokens)),
                refusal=Refusal("memory"),
            )

    def check(self, offer: Offer, now: float) -> None:
        """Raises ServiceError (503) when the backlog is too large for this question. An idle engine accepts any.

        The bound on the time in the queue is not applied to a question with an earlier deadline. Such a question is
        answered at its deadline with the scores known by then, and is refused only if its first stage cannot end
        before the deadline.
        """
        self._fade(now)
        own = self._speeds.shared(offer.stage_tokens)
        self._offered[_size(own)] = self._offered.get(_size(own), 0.0) + own
        try:
            if self._pending:
                self.check_room()
                wait = self.wait(offer.stage_tokens, offer.weight)
                self._check_deadline(offer, wait, now)
                self._check_bound(offer, wait, now)
        except ServiceError:
            self._refused += own
            raise
        self._accepted += own

    def _fade(self, now: float) -> None:
        share = exp(min(0.0, (self._faded - now) / MEMORY_SECONDS))
        self._accepted, self._refused, self._faded = share * self._accepted, share * self._refused, now
        self._offered = {size: share * seconds for size, seconds in self._offered.items()}

    def _overtaken(self, own: float, refused: float) -> float:
        """The share, 0 to 1, by which smaller, later questions delay the end of a question of `own` seconds."""
        served = max(self._accepted, self._bound)
        smaller = sum(seconds for size, seconds in self._offered.items() if size < _size(own) - SMALLER)
        return min(1.0, refused / served) * min(1.0, smaller / (OVERTAKING * served))

    def _check_deadline(self, offer: Offer, wait: float, now: float) -> None:
        begins = next((stage for stage, tokens in enumerate(offer.stage_tokens) if tokens), 0)
        first = self._speeds.alone([tokens * (stage == begins) for stage, tokens in enumerate(offer.stage_tokens)])
        if now + wait + first > offer.deadline:
            raise ServiceError(
                Kind.UNAVAILABLE,
                f"no score would be known before {wait + first:.3f} seconds, after the deadline; try again later",
                retry_after=retry_after(wait),
                refusal=Refusal("deadline", seconds=wait),
            )

    def _check_bound(self, offer: Offer, wait: float, now: float) -> None:
        own, alone = self._speeds.shared(offer.stage_tokens), self._speeds.alone(offer.stage_tokens)
        if offer.deadline <= offer.received + self._bound + alone:
            return
        queued = now - offer.received + wait + self._overtaken(own, self._refused) * (wait + own)
        if queued > self._bound:
            overtaken = self._overtaken(own, self._refused + own)
            room = max(0.0, (self._bound - overtaken * own) / (1.0 + overtaken))
            raise ServiceError(
                Kind.UNAVAILABLE,
                f"the queue is full: this question would wait {queued:.1f} seconds, at most {self._bound:g} are "
                "allowed; try again later",
                retry_after=retry_after(wait - room),
                refusal=Refusal("queue", seconds=queued),
            )

    def enter(self, key: int, offer: Offer) -> None:
        """Add an accepted question."""
        seconds = self._speeds.shared(offer.stage_tokens)
        fair_end = self._clock.enter(key, seconds, offer.weight)
        self._pending[key] = Pending(offer.tokens, seconds, fair_end)
        self.tokens += offer.tokens

    def ran(self, key: int, stage: int, tokens: int, *, reserved: bool = False) -> None:
        """Record that `tokens` of the question `key` ran through `stage`, in turn or as `reserved` work (`Step`)."""
        seconds = self._speeds.share(stage, tokens)
        if not reserved:
            self._clock.serve(seconds)
        if pending := self._pending.get(key):
            pending.seconds = max(0.0, pending.seconds - seconds)
            pending.reserved |= reserved

    def leave(self, key: int, *, answered: bool) -> None:
        """Remove a question that was answered in full or abandoned; without effect if it was removed before."""
        if (pending := self._pending.pop(key, None)) is None:
            return
        self.tokens -= pending.tokens
        if not answered or pending.reserved:
            self._clock.leave(key)
        if not self._pending:
            self._clock.clear()
