"""The call that requests of every dialect are translated to, and the answer that every dialect renders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import Scores
from cerberank_models.calibration import Probabilities, log_odds
from cerberank_models.encoding import Candidate
from cerberank_models.windows import NO_SPAN, Windowing

WINDOWS = Windowing()
"""The default: every text is read to its end in windows, and its score is that of its best window."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCall:
    """Rank `candidates` for `question`."""

    question: str
    candidates: tuple[Candidate, ...]
    model: str | None = None
    version: str | None = None
    """The version that the request names, which only some dialects allow; 404 when it is not served."""
    top_k: int | None = None
    drop_ratio: float | tuple[float, ...] | None = None
    """One ratio for every exit, or one per exit; None for the version's drop schedule."""
    deadline_ms: float | None = None
    latency_target_ms: float | None = None
    """Use the tuned schedule that drops least and is predicted to end within this time; ignored with `drop_ratio`."""
    priority: int = 0
    """0 (the highest) to 999."""
    refuse_truncation: bool = False
    """Fail if a text would have to be cut."""
    windowing: Windowing | None = WINDOWS
    """Read candidates that are too long in windows, within the service's limits; None if the request asks for cuts."""
    most_tokens: int | None = None
    """Read at most this many tokens of each candidate."""
    min_precision: float | None = None
    """Omit results below the calibrated score at which first results reach this precision."""
    instruction: str | None = None
    """The instruction that a model with a prompt reads beside the question."""
    ignore_instruction: bool = False
    """With a model that has no prompt, rank without the instruction rather than fail."""
    tenant: str = ""
    """Hash of the caller's API key, empty without keys. Cache entries are not shared between tenants."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Milliseconds by phase; `queue` is the wait for the first engine step, `compute` the time from then on.

    With a first stage, each phase is the sum over the question's two works in the engine.
    """

    encode: float
    queue: float
    compute: float
    total: float

    @property
    def rest(self) -> float:
        """The milliseconds of no other phase: waits for threads, and the writing of the answer."""
        return max(0.0, self.total - self.encode - self.queue - self.compute)


@dataclass(frozen=True, kw_only=True, slots=True)
class RankAnswer:
    """A ranking of n candidates. Arrays have an entry for each candidate, except `order`."""

    request_id: str
    model: str
    version: str
    drop_schedule: tuple[float, ...]
    complete: bool
    order: NDArray[np.int64]
    """The candidates' places in the request, best first, already cut to `top_k`."""
    scores: Scores
    """The network's own scores; NaN for candidates that no stage scored before the deadline."""
    stages: NDArray[np.int64]
    """The last stage that scored each candidate, -1 for none."""
    heads: Scores | None
    """Probabilities of the k heads, shape [n, k]; NaN for candidates that no head scored."""
    truncated: NDArray[np.bool_]
    """True where the candidate's end was not read."""
    tokens: int
    timing: Timing
    question_truncated: bool = False
    """True where the question's end was not read."""
    unknown: int = 0
    """Number of candidates most of whose tokens are not in the vocabulary."""
    question_unknown: bool = False
    """True where most tokens of the question are not in the vocabulary."""
    warnings: tuple[str, ...] = field(default=())
    calibrated: Probabilities | None = None
    """The calibrated scores; None for a version that is not calibrated."""
    calibrated_everywhere: bool = False
    """True if other dialects than the native one also report calibrated scores."""
    least: float | None = None
    """The calibrated score that belongs to the call's `min_precision`: results below it are omitted."""
    expected_loss: Mapping[str, float] = field(default_factory=dict)
    """Points of each metric that the schedule may cost; empty if unknown or if all reached the last stage."""
    spans: NDArray[np.int64] | None = None
    """Shape [n, 2]: each candidate's best window (`Windows.folded`); None if all candidates fit without windows."""

    @property
    def told(self) -> Scores:
        """The scores that the native dialect reports: calibrated ones if there are any."""
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
        told = self.told if self.calibrated_everywhere else self.scores
        return np.minimum.accumulate(np.nan_to_num(told[self.order]))

    def falling_log_odds(self) -> Scores:
        """The scores of `falling_scores` as log-odds; finite, because JSON has no infinity."""
        return log_odds(self.falling_scores())
