"""The call that every dialect's request is translated to, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.contract import Scores
from cerberank_models.calibration import Probabilities
from cerberank_models.encoding import Candidate
from cerberank_models.windows import NO_SPAN, Windowing

WINDOWS = Windowing()
"""Every text is read to its end, and its best window counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCall:
    """Rank `candidates` for `question`."""

    question: str
    candidates: tuple[Candidate, ...]
    model: str | None = None
    version: str | None = None
    """Some dialects name a version beside the model; 404 when it is not served."""
    top_k: int | None = None
    drop_ratio: float | tuple[float, ...] | None = None
    """One ratio for every exit, or one per exit; None takes the checkpoint's schedule."""
    deadline_ms: float | None = None
    latency_target_ms: float | None = None
    """Use the tuned drop schedule that drops least among those predicted to meet this; ignored with `drop_ratio`."""
    priority: int = 0
    """0 (the highest) to 999."""
    refuse_truncation: bool = False
    """Fail rather than cut a text."""
    windowing: Windowing | None = WINDOWS
    """Read candidates that do not fit in windows, within the service's limits; None, an explicit wish, cuts them."""
    most_tokens: int | None = None
    """Read at most so many tokens of each candidate."""
    min_precision: float | None = None
    """Leave results out below the score from which on first results of a calibrated model have this precision."""
    instruction: str | None = None
    """The instruction for a model with a prompt, beside the question."""
    ignore_instruction: bool = False
    """Rank without the instruction where the model has no prompt, rather than fail."""
    tenant: str = ""
    """Hash of the caller's API key, empty without keys. No tenant uses what another's texts left in a cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Milliseconds by phase; queue is the wait for the first engine step, compute the time from then on.

    With a first stage each phase is the sum of both steps'.
    """

    encode: float
    queue: float
    compute: float
    total: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RankAnswer:
    """A ranking; arrays are by candidate, n of them."""

    request_id: str
    model: str
    version: str
    drop_schedule: tuple[float, ...]
    complete: bool
    order: NDArray[np.int64]
    """The best first, already cut to `top_k`."""
    scores: Scores
    """The network's own; NaN for candidates that no stage scored before the deadline."""
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
    """Candidates whose tokens the vocabulary mostly lacks."""
    question_unknown: bool = False
    """True where the vocabulary lacks most tokens of the question."""
    warnings: tuple[str, ...] = field(default=())
    calibrated: Probabilities | None = None
    """None for a version that is not calibrated."""
    calibrated_everywhere: bool = False
    """True if dialects that do not know of calibration tell calibrated scores too."""
    least: float | None = None
    """The calibrated score of the call's `min_precision`: only results that reach it are told."""
    expected_loss: Mapping[str, float] = field(default_factory=dict)
    """Points of each metric that the schedule is expected to cost; empty when nothing was dropped, or none is known."""
    spans: NDArray[np.int64] | None = None
    """Shape [n, 2]: each candidate's best window (`Windows.folded`); None where none was read in windows."""

    @property
    def told(self) -> Scores:
        """The scores that the native dialect tells: calibrated ones where there are any."""
        return self.scores if self.calibrated is None else self.calibrated.scores

    def window(self, index: int) -> tuple[int, int] | None:
        """The best window's span of a candidate, in code points of its text; None if it was not read in windows."""
        if self.spans is None or self.spans[index, 0] == NO_SPAN:
            return None
        start, end = self.spans[index].tolist()
        return start, end

    def falling_scores(self) -> Scores:
        """Scores in `order`, capped so that they never rise.

        Scores of different exits are not comparable, so a dropped candidate may have a higher score than a survivor
        ranked above it. Clients of dialects without a stage field sort by score; the cap keeps the order. Candidates
        without a score get 0, which those dialects cannot express otherwise; a warning says so.
        """
        told = self.told if self.calibrated_everywhere else self.scores
        return np.minimum.accumulate(np.nan_to_num(told[self.order]))

    def falling_log_odds(self) -> Scores:
        """The falling scores as log-odds; finite, because JSON has no infinity."""
        inside = np.clip(self.falling_scores(), 1e-12, 1 - 1e-12)
        return np.log(inside) - np.log1p(-inside)
