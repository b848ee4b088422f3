"""Admission control: a new question is refused when its predicted time in the queue is too long.

A question waits for the work that was accepted before it and is not done when it comes, as in the order of arrival. A
small one beside much larger ones waits for less, because it overtakes them. It is refused when this wait exceeds the
bound. How much later ones will overtake it is not predicted: the scheduler lets it take at most twice as long. So no
question is refused because of others that were refused or may come.

This module does no input or output and has no clock; the caller holds a lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

from cerberank_service.engine.cost import StageSpeeds
from cerberank_service.engine.scheduler import LEAST_SURPLUS, OVERTAKING
from cerberank_service.errors import Kind, Refusal, ServiceError

MOST_TOKENS = 4_000_000
"""Limit of the tokens of accepted, unanswered questions, which bounds memory. Beyond it new questions are refused."""
REFUSED_SECONDS_AT_ONCE = 10.0
"""Seconds of work that refused questions may count as load at one moment."""
LAST_PRIORITY = 999
"""The least priority, which has the largest number."""
HALVING = 100
"""Difference of priorities that halves a question's share."""
LONGEST_RETRY = 60
"""The most seconds in `Retry-After`."""


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
    request: int | None = None
    """The request of several questions that it belongs to (`Work.request`)."""


@dataclass(slots=True)
class Outstanding:
    """The outstanding work of an accepted question."""

    tokens: int
    seconds: float
    """Predicted seconds of computation that remain, in steps that the question shares with others."""
    weight: float
    request: int | None = None


class Admission:
    """Tracks accepted questions until they are answered, and decides whether new ones are accepted."""

    def __init__(self, speeds: StageSpeeds, queue_seconds: float = inf, most_tokens: int = MOST_TOKENS) -> None:
        """`queue_seconds` bounds the time in the queue; above `most_tokens` pending tokens no question is accepted."""
        self._speeds = speeds
        self._queue_seconds = queue_seconds
        self._most_tokens = most_tokens
        self._outstanding: dict[int, Outstanding] = {}
        self._refused_until = -inf
        self.tokens = 0

    @property
    def seconds(self) -> float:
        """Predicted seconds until all accepted questions are answered."""
        return sum(question.seconds for question in self._outstanding.values())

    def wait(self, stage_tokens: tuple[float, ...], weight: float, request: int | None = None) -> float:
        """Predicted seconds by which pending work delays a question with these tokens by stage; 0 without any work.

        It is at most all pending work, as in the order of arrival. A question that overtakes waits for those that the
        scheduler prefers to it, for a step, and for the share of the oldest question meanwhile (`OVERTAKING`).
        Questions of the same `request` do not count.
        """
        others = self._others(request)
        own, step = self._speeds.shared(stage_tokens), self._speeds.longest_step()
        ahead = sum(each.seconds for each in others if each.seconds / each.weight <= own / weight)
        oldest = max(0.0, ahead + own - LEAST_SURPLUS * step) / OVERTAKING
        return min(sum(each.seconds for each in others), ahead + oldest + step)

    def _others(self, request: int | None) -> list[Outstanding]:
        """The accepted questions, without those of the same request of several questions."""
        return [each for each in self._outstanding.values() if request is None or each.request != request]

    def check_room(self) -> None:
        """Raises ServiceError (503) while more tokens are pending than the limit allows."""
        if self._outstanding and self.tokens > self._most_tokens:
            raise ServiceError(
                Kind.UNAVAILABLE,
                "too much work is queued; try again later",
                retry_after=retry_after(self.seconds * (1.0 - self._most_tokens / self.tokens)),
                refusal=Refusal("memory"),
            )

    def check(self, offer: Offer, now: float) -> None:
        """Raises ServiceError (503) when the backlog is too large for this question. An idle engine accepts any.

        The bound on the time in the queue is not applied to a question with an earlier deadline. Such a question is
        answered at its deadline with the scores known by then, and is refused only if its first stage cannot end
        before the deadline.
        """
        if self._others(offer.request):
            self.check_room()
            wait = self.wait(offer.stage_tokens, offer.weight, offer.request)
            self._check_deadline(offer, wait, now)
            self._check_bound(offer, wait, now)

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
        if offer.deadline <= offer.received + self._queue_seconds + self._speeds.alone(offer.stage_tokens):
            return
        queued = now - offer.received + wait
        if queued > self._queue_seconds:
            raise ServiceError(
                Kind.UNAVAILABLE,
                f"the queue is full: this question would wait {queued:.1f} seconds, at most "
                f"{self._queue_seconds:g} are allowed; try again later",
                retry_after=retry_after(wait - self._queue_seconds),
                refusal=Refusal("queue", seconds=queued),
            )

    def refused_load(self, offer: Offer, now: float) -> float:
        """Seconds of a refused question that count as load: of all together at most one in each second.

        A client that repeats a refused question at once, without `Retry-After`, could otherwise have any number of
        replicas started. More than twice the capacity is therefore seen only after the next replicas have started.
        """
        begin = max(self._refused_until, now - REFUSED_SECONDS_AT_ONCE)
        self._refused_until = min(now, begin + self._speeds.shared(offer.stage_tokens))
        return self._refused_until - begin

    def enter(self, key: int, offer: Offer) -> None:
        """Add an accepted question."""
        seconds = self._speeds.shared(offer.stage_tokens)
        self._outstanding[key] = Outstanding(offer.tokens, seconds, offer.weight, offer.request)
        self.tokens += offer.tokens

    def ran(self, key: int, stage: int, tokens: int) -> None:
        """Record that `tokens` of the question `key` ran through `stage`."""
        if question := self._outstanding.get(key):
            question.seconds = max(0.0, question.seconds - self._speeds.share(stage, tokens))

    def leave(self, key: int) -> None:
        """Remove a question that was answered or abandoned; without effect if it was removed before."""
        if question := self._outstanding.pop(key, None):
            self.tokens -= question.tokens
