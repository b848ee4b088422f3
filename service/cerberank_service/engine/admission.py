"""Admission control: a new question is refused when it would wait too long in the queue. Pure; the caller holds a lock.

The time in the queue is the predicted end of a question less what it would take alone. It is predicted with a fair
clock like the scheduler's (`fairness`) from what is pending: a question waits for those whose fair ends come before its
own, so that a small one waits for a step beside large ones, and a large one for nearly the whole backlog.

Later arrivals that overtake a question, which are smaller than it, cannot be predicted one by one. While no question is
refused they are left out. Under overload the predicted end is later by the work that lately came in smaller questions,
and at most twice as late: the scheduler reserves half of the work for the oldest question.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, floor, inf, log2

from cerberank_service.engine.cost import StageSpeeds
from cerberank_service.engine.fairness import FairClock
from cerberank_service.engine.scheduler import OLDEST_AFTER
from cerberank_service.errors import Kind, Refusal, ServiceError

MOST_TOKENS = 4_000_000
"""Tokens of accepted questions that are not answered yet, to bound their memory. Beyond it questions are refused."""
MEMORY_SECONDS = 20.0
"""Time constant with which offered work is forgotten: a minute after an overload it no longer matters."""
OVERTAKING = 0.25
"""Work in smaller questions, relative to what is served, with which a question ends twice as late. With half of what is
served, 1.8 to 3.6 % of the mixed questions waited longer than the bound and a tenth at three times the capacity, with a
quarter 1.6 to 2.3 % (B11 3H1, four seeds of `python -m tools.overload`'s arrivals)."""
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
    """The cost and the times of a question, on the engine's clock."""

    tokens: int
    """Tokens of all its pairs."""
    stage_tokens: tuple[float, ...]
    """Expected tokens of each stage."""
    weight: float = 1.0
    received: float = 0.0
    """Time of arrival."""
    deadline: float = inf


SMALLER = 2
"""Sizes between a question and those that are smaller: they cost at most 1/sqrt(2) of it. Questions that cost about the
same do not overtake each other, on whichever side of a size's edge they lie."""


def _size(seconds: float) -> int:
    """The size of a question, in quarters of a doubling of its cost."""
    return floor(4.0 * log2(max(seconds, 1e-9)))


@dataclass(slots=True)
class Pending:
    """The outstanding work of an accepted question."""

    tokens: int
    seconds: float
    """Predicted compute that is left, in steps that it shares with others."""
    fair_end: float
    """Virtual time, meaningful only in comparisons."""
    reserved: bool = False
    """True once some of its work was reserved: it then leaves the clock when answered, as in the scheduler."""


class Admission:
    """Tracks the questions that were accepted and are not answered yet, and decides about new ones."""

    def __init__(self, speeds: StageSpeeds, queue_seconds: float = inf, most_tokens: int = MOST_TOKENS) -> None:
        """`queue_seconds` bounds the time in the queue, `most_tokens` what is pending before a question is accepted."""
        self._speeds, self._bound, self._most = speeds, queue_seconds, most_tokens
        self._pending: dict[int, Pending] = {}
        self._clock = FairClock()
        self._accepted = self._refused = self._faded = 0.0
        self._offered: dict[int, float] = {}
        """Accepted and refused seconds by `_size` of the questions."""
        self.tokens = 0

    @property
    def seconds(self) -> float:
        """Predicted seconds until all accepted questions are answered."""
        return sum(pending.seconds for pending in self._pending.values())

    def wait(self, stage_tokens: tuple[float, ...], weight: float) -> float:
        """Predicted seconds that pending work delays a question with these tokens by stage; 0 without any.

        Those behind it delay it by the step that runs, and by the share of the work that the scheduler reserves for
        the oldest question, but never by more than is left of them.
        """
        own = self._speeds.shared(stage_tokens)
        end = self._clock.end_of(own, weight)
        ahead = sum(pending.seconds for pending in self._pending.values() if pending.fair_end <= end)
        behind = self.seconds - ahead
        return ahead + min(behind, (ahead + own) / OLDEST_AFTER + self._speeds.longest_step())

    def check_room(self) -> None:
        """Raises ServiceError (503) while as many tokens are pending as memory is meant for."""
        if self._pending and self.tokens > self._most:
            raise ServiceError(
                Kind.UNAVAILABLE,
                "too much work is queued; try again later",
                retry_after=retry_after(self.seconds * (1.0 - self._most / self.tokens)),
                refusal=Refusal("memory"),
            )

    def check(self, offer: Offer, now: float) -> None:
        """Raises ServiceError (503) when the backlog is too large for this question. An idle engine takes any.

        The bound does not hold for a question whose deadline comes before it: that is answered by its deadline with
        what is known, and refused only when its first stage cannot end before.
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
        """The share, 0 to 1, by which smaller questions that come later put off the end of one of `own` seconds."""
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
        """Record that `tokens` of the question `key` went through `stage`, in turn or as `reserved` work (`Step`)."""
        seconds = self._speeds.share(stage, tokens)
        if not reserved:
            self._clock.serve(seconds)
        if pending := self._pending.get(key):
            pending.seconds = max(0.0, pending.seconds - seconds)
            pending.reserved |= reserved

    def leave(self, key: int, *, answered: bool) -> None:
        """Remove a question that was answered in full, or abandoned; one that has left already is not an error."""
        if (pending := self._pending.pop(key, None)) is None:
            return
        self.tokens -= pending.tokens
        if not answered or pending.reserved:
            self._clock.leave(key)
        if not self._pending:
            self._clock.clear()
