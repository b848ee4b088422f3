"""The call that a question becomes in Python and in every dialect of the service, and the answer that each renders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import Scores
from cerberank_models.calibration import Probabilities, log_odds_of
from cerberank_models.encoding import Candidate
from cerberank_models.request import RankRequest
from cerberank_models.windows import MOST_WINDOWS, NO_SPAN, Windowing

WINDOWS = Windowing()
"""The default: the model's own rule, without limits on windows."""


class CallError(ValueError):
    """A call that the model cannot answer; the message names the field."""

    def __init__(self, message: str, *, tokens: int = 0) -> None:
        """`tokens` is the number of tokens that were read before the call was refused."""
        super().__init__(message)
        self.tokens = tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCall:
    """Rank `candidates` for `question`. The fields on models, deadlines and priorities are for a service."""

    question: str
    candidates: tuple[Candidate, ...]
    model: str | None = None
    version: str | None = None
    """The version that the request names, which only some dialects allow; 404 when it is not served."""
    top_k: int | None = None
    drop_ratio: float | tuple[float, ...] | None = None
    """One ratio for every exit, or one per exit; None for the version's drop schedule."""
    lexical_ratio: float | None = None
    """The share that the lexical layer drops; None for the version's, or for none if the call has a `drop_ratio`."""
    deadline_ms: float | None = None
    latency_target_ms: float | None = None
    """Use the tuned schedule that drops least and is predicted to end within this time; ignored with `drop_ratio`."""
    priority: int = 0
    """0 (the highest) to 999."""
    refuse_truncation: bool = False
    """Fail if a text would have to be cut."""
    windowing: Windowing | None = WINDOWS
    """Read candidates that are too long in windows; None if the request asks for cuts."""
    most_tokens: int | None = None
    """Read at most this many tokens of each candidate."""
    min_precision: float | None = None
    """Omit results below the calibrated score at which first results reach this precision."""
    instruction: str | None = None
    """The instruction that a model with a prompt reads beside the question."""
    ignore_instruction: bool = False
    """With a model that has no prompt, rank without the instruction rather than fail."""

    @classmethod
    def of(cls, request: RankRequest) -> RankCall:
        """The call of a request in the form of `POST /v1/rank`."""
        return cls(
            question=request.question,
            candidates=request.texts(),
            model=request.model,
            top_k=request.top_k,
            drop_ratio=request.ratios,
            lexical_ratio=request.lexical_ratio,
            deadline_ms=request.deadline_ms,
            latency_target_ms=request.latency_target_ms,
            priority=request.priority,
            windowing=None if request.windows == "off" else Windowing(combine=request.windows),
            min_precision=request.min_precision,
            instruction=request.instruction or None,
        )

    def limited(self, most_rows: int) -> RankCall:
        """This call with at most `MOST_WINDOWS` windows of a text, and `most_rows` windows of all texts."""
        if self.windowing is None:
            return self
        return replace(self, windowing=self.windowing.within(most=MOST_WINDOWS, most_rows=most_rows))


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Milliseconds by phase; `queue` is the wait for the first engine step, `compute` the time from then on.

    With a first stage, each phase is the sum over the question's two works in the engine.
    """

    encode: float = 0.0
    queue: float = 0.0
    compute: float = 0.0
    total: float = 0.0

    @property
    def rest(self) -> float:
        """The milliseconds of no other phase: waits for threads, and the writing of the answer."""
        return max(0.0, self.total - self.encode - self.queue - self.compute)


@dataclass(frozen=True, kw_only=True, slots=True)
class RankAnswer:
    """A ranking of n candidates. Arrays have an entry for each candidate, except `order`."""

    model: str
    version: str
    drop_schedule: tuple[float, ...]
    complete: bool
    order: NDArray[np.int64]
    """The candidates' places in the request, best first, already cut to `top_k`."""
    scores: Scores
    """The network's own scores; NaN for candidates that no stage scored: before the deadline, or at all."""
    stages: NDArray[np.int64]
    """The last stage that scored each candidate, -1 for none."""
    heads: Scores | None
    """Probabilities of the k heads, shape [n, k]; NaN for candidates that no head scored."""
    truncated: NDArray[np.bool_]
    """True where the candidate's end was not read."""
    tokens: int
    lexical_ratio: float = 0.0
    lexical_scores: Scores | None = None
    """The lexical scores of candidates that the lexical layer dropped, NaN for others; None if it dropped none."""
    question_truncated: bool = False
    """True where a part of the question was not read."""
    unknown: int = 0
    """Number of candidates most of whose tokens are not in the vocabulary."""
    question_unknown: bool = False
    """True where most tokens of the question are not in the vocabulary."""
    warnings: tuple[str, ...] = field(default=())
    calibrated: Probabilities | None = None
    """The calibrated scores; None for a version that is not calibrated."""
    threshold: float | None = None
    """The calibrated score that belongs to the call's `min_precision`: results below it are omitted."""
    expected_loss: Mapping[str, float] = field(default_factory=dict)
    """Points of each metric that the schedule may cost; empty if unknown or if all reached the last stage."""
    spans: NDArray[np.int64] | None = None
    """Shape [n, 2]: each candidate's best window (`Windows.folded`); None if all candidates fit without windows."""
    request_id: str = ""
    """From a service: the id of the request."""
    timing: Timing = Timing()
    """From a service: the milliseconds of the request."""
    calibrated_everywhere: bool = False
    """True if other dialects than the native one also report calibrated scores."""

    @property
    def reported(self) -> Scores:
        """The scores that the native dialect and Python report: calibrated ones if there are any."""
        return self.scores if self.calibrated is None else self.calibrated.scores

    def window(self, index: int) -> tuple[int, int] | None:
        """The span of a candidate's best window, in code points of its text; None if it was not read in windows."""
        if self.spans is None or self.spans[index, 0] == NO_SPAN:
            return None
        start, end = self.spans[index].tolist()
        return start, end

    def falling_scores(self) -> Scores:
        """Scores in `order`, capped so that they never rise.

        Scores of different exits are not comparable, so a dropped candidate may have a higher score than a survivor
        ranked above it. Clients of dialects without a stage field may sort by score; the cap keeps the order then.
        Candidates without a score get 0, because those dialects require a number; a warning says so.
        """
        scores = self.reported if self.calibrated_everywhere else self.scores
        return np.minimum.accumulate(np.nan_to_num(scores[self.order]))

    def falling_log_odds(self) -> Scores:
        """The scores of `falling_scores` as log-odds; finite, because JSON has no infinity."""
        return log_odds_of(self.falling_scores())
