"""The input of an engine, its result, and the errors of questions that it cannot answer."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from cerberank_models.backends.contract import Scores, Vector
from cerberank_models.drop import DropPolicy
from cerberank_models.encoding import EncodedPairs
from cerberank_service.engine.waiting_states import Rows
from cerberank_service.errors import Kind, Refusal, ServiceError


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Rows to score, and the time until which an answer is wanted: arrays and numbers alone.

    A question is one work; with a first stage it is up to two: its texts' vectors, then its survivors' pairs.
    """

    pairs: EncodedPairs
    """Pairs, or the texts that a first stage reads."""
    policy: DropPolicy
    """Decides which candidates survive each of the work's stages, counted from 0; it also has their number."""
    received: float
    """Time of the request's arrival, in seconds on the engine's clock."""
    deadline: float | None
    """The time after which no further stage is begun, on the same clock."""
    priority: int = 0
    """0 (the highest) to 999."""
    first_stage: int = 0
    """The engine's stage that is the work's stage 0."""
    later_tokens: tuple[float, ...] = ()
    """Tokens that the question's next work is expected to run in each stage after this one's."""
    follows: int | None = None
    """The key of the question's work before this one, which was accepted, so that this one is not refused."""
    ordered: bool = False
    """If true, a missed deadline returns the partial order instead of an error; with `leads`, once row 0 is scored."""
    leads: bool = False
    """Run row 0 (the question's vector) in the first step: the other rows need it."""
    dropped: int = 0
    """Candidates that the stage before `first_stage` has dropped."""

    @property
    def queued_tokens(self) -> int:
        """Tokens that count as queued: its own, and those that enter the first stage of the next work."""
        return self.pairs.tokens + round(max(self.later_tokens, default=0.0))

    @property
    def own_tokens(self) -> tuple[float, ...]:
        """Expected tokens of each of the engine's stages."""
        own = (0.0,) * self.first_stage + stage_tokens(self.pairs, self.policy)
        return own + (0.0,) * len(self.later_tokens)

    @property
    def stage_tokens(self) -> tuple[float, ...]:
        """The same with those that the question's next work is expected to run."""
        return self.own_tokens[: -len(self.later_tokens) or None] + self.later_tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranked:
    """The engine's result; arrays are by candidate."""

    order: Rows
    scores: Scores
    """NaN for candidates that no stage scored."""
    stages: Rows
    """The stage of each score; UNSCORED when the deadline came before any."""
    heads: Scores | None
    complete: bool
    queue_seconds: float
    compute_seconds: float
    vectors: Sequence[Vector | None] | None = None
    """Vectors of a first stage, None for texts without one; only where the work ran one."""
    spans: Rows | None = None
    """Shape [n, 2]: each candidate's best window (`Windows.folded`); None where none was read in windows."""


Outcome = Ranked | ServiceError


@dataclass(frozen=True, slots=True)
class Ticket:
    """An accepted work: the engine's key for it, and its outcome."""

    key: int
    outcome: Future[Outcome]


def stage_tokens(pairs: EncodedPairs, policy: DropPolicy) -> tuple[float, ...]:
    """Expected tokens of each stage, on the assumption that survivors are of average length."""
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
    """The error of a question whose deadline passed while it waited; `wait` are the seconds to come again after."""
    text = "the deadline passed before any candidate could be scored; try again later"
    return ServiceError(Kind.UNAVAILABLE, text, retry_after=wait, refusal=Refusal("deadline"))


def client_gone() -> ServiceError:
    """The outcome of a question whose client has disconnected; it is sent to nobody."""
    return ServiceError(Kind.UNAVAILABLE, "the client has gone")
