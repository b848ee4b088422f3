"""The input of an engine (`Work`), its result (`Ranked`), and the errors of questions that are not answered."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from cerberank_models.backends.stage_contract import Vector
from cerberank_models.drop import DropPolicy
from cerberank_models.encoding import EncodedPairs
from cerberank_models.rank_pairs import Ranking
from cerberank_service.errors import Kind, Refusal, ServiceError


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Rows for the engine to score, with their deadline and priority. Holds only arrays and numbers.

    A question is one work. With a first stage it may be two: the vectors of its texts, then the pairs that survive.
    """

    pairs: EncodedPairs
    """The pairs to score, or the texts whose vectors a first stage computes."""
    policy: DropPolicy
    """Decides which candidates survive each of the work's stages (counted from 0), and defines their number."""
    received: float
    """Time of the request's arrival, in seconds on the engine's clock."""
    deadline: float | None
    """The time after which no further step runs for this work, on the same clock; None without a deadline."""
    priority: int = 0
    """0 (the highest) to 999."""
    begins_at: int = 0
    """The engine's stage at which the work begins: 1 for the pairs of a model with a first stage."""
    later_tokens: tuple[float, ...] = ()
    """Expected tokens of the question's next work, for each stage after the stages of this work."""
    follows: int | None = None
    """The key of the question's previous work. A question that was accepted once is not refused at its second work."""
    ordered: bool = False
    """True if an order is known before any row is scored, so that a missed deadline returns an order, not an error;
    with `leads`, only once row 0 is scored."""
    leads: bool = False
    """True if row 0 is the question's text, which runs in the first step because candidates need its vector."""
    dropped: int = 0
    """Number of candidates that were dropped before the work begins."""
    request: int | None = None
    """The number of a request of several questions, whose other questions do not count as work before this one."""

    @property
    def queued_tokens(self) -> int:
        """Tokens that count as queued: those of this work, and those that enter the first stage of the next work."""
        return self.pairs.tokens + round(max(self.later_tokens, default=0.0))

    @property
    def own_tokens(self) -> tuple[float, ...]:
        """Expected tokens of this work in each of the engine's stages."""
        own = (0.0,) * self.begins_at + stage_tokens(self.pairs, self.policy)
        return own + (0.0,) * len(self.later_tokens)

    @property
    def stage_tokens(self) -> tuple[float, ...]:
        """Expected tokens of this work and of the question's next work in each of the engine's stages."""
        return self.own_tokens[: -len(self.later_tokens) or None] + self.later_tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranked(Ranking):
    """The engine's ranking of a work. Candidates that no stage scored have the score NaN and the stage UNSCORED."""

    queue_seconds: float
    compute_seconds: float
    vectors: Sequence[Vector | None] | None = None
    """The texts' vectors, if the work ran a first stage; an entry is None if the vector was not computed."""


Outcome = Ranked | ServiceError


@dataclass(frozen=True, slots=True)
class Ticket:
    """An accepted work: the engine's key for it, and its outcome."""

    key: int
    outcome: Future[Outcome]


def stage_tokens(pairs: EncodedPairs, policy: DropPolicy) -> tuple[float, ...]:
    """Expected tokens of each stage, assuming that survivors are of average length."""
    mean = pairs.tokens / pairs.candidates
    return tuple(alive * mean for alive in policy.expected_alive(pairs.candidates))


def stopped() -> ServiceError:
    """The error of questions that arrive or remain after `Engine.stop`."""
    text = "the service is shutting down; ask another replica"
    return ServiceError(Kind.UNAVAILABLE, text, retry_after=1, refusal=Refusal("stopping"))


def dead() -> ServiceError:
    """The error of questions that arrive or wait when the engine's thread has failed or hangs."""
    text = "the model's thread has failed; ask another replica"
    return ServiceError(Kind.UNAVAILABLE, text, retry_after=5, refusal=Refusal("failed"))


def too_late(wait: int) -> ServiceError:
    """The error of a question whose deadline passed while it waited; the client may retry after `wait` seconds."""
    text = "the deadline passed before any candidate could be scored; try again later"
    return ServiceError(Kind.UNAVAILABLE, text, retry_after=wait, refusal=Refusal("deadline"))


def client_gone() -> ServiceError:
    """The outcome of a question whose client has disconnected; it is never sent."""
    return ServiceError(Kind.UNAVAILABLE, "the client has gone")
