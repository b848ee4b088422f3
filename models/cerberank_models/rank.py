"""Ranks one question's candidates through all stages without the service's engine, and checks golden questions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.contract import Backend, Scores
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.manifest import GoldenQuestion
from cerberank_models.config import RankerConfig
from cerberank_models.drop import DropPolicy, Survival, check_exits, order
from cerberank_models.encoding import Candidate, EncodedPairs, PairEncoder

HALF_TOLERANCE = {"fp16": 0.02, "bf16": 0.1}
"""The largest allowed difference between scores in half precision and the recorded fp32 scores.

With MiniLM's weights the largest measured error of a logit is .013 in fp16 and .14 in bf16. A probability changes by at
most a quarter of that: .003 and .035. The bounds are six and three times these errors, because deeper networks round
more often.
"""
CLEAR_GAP = 1.0
"""Candidates whose log-odds differ by more than this must keep their order in every precision. The value is seven times
bf16's largest error."""
CERTAIN = 1e-12
"""Scores are clipped to at least this distance from 0 and 1, because float64 has few digits left closer to 1."""


class NonFiniteScoreError(ArithmeticError):
    """A stage computed NaN or infinity, which cannot be ranked."""


class GoldenMismatchError(RuntimeError):
    """The backend does not reproduce the golden scores, the scores of example questions recorded in the checkpoint."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The result for n candidates. `order` lists the candidates, best first; the other arrays are by candidate."""

    order: NDArray[np.int64]
    scores: Scores
    """Shape [n]: the score at the last stage that the candidate reached."""
    stages: NDArray[np.int64]
    """Shape [n]: the last stage that the candidate reached, counted from 0."""
    head_scores: Scores | None
    """Shape [n, k]: the score of each head, NaN for candidates dropped before the heads; None without heads."""
    spans: NDArray[np.int64] | None = None
    """Shape [n, 2]: the best window of each candidate (`Windows.folded`); None if no candidate was read in windows."""
    complete: bool = True
    """False if the deadline passed before the last stage."""


def rank_pairs(
    backend: Backend[Any], pairs: EncodedPairs, policy: DropPolicy | None = None, *, until: float | None = None
) -> Ranking:
    """Run the stages of pairs over one question's pairs, and drop candidates after each stage by `policy`.

    `policy` covers the stages of pairs only; None means the checkpoint's policy without the ratio of its first stage.
    After the time `until` (of `time.monotonic`) no further stage is started, but the first stage of pairs always runs.

    Raises ValueError if there are no candidates or `policy` has a different number of stages, and NonFiniteScoreError
    if a score is NaN or infinite.
    """
    if len(pairs) == 0:
        raise ValueError("there must be at least one candidate")
    policy = pairs_policy(backend.config) if policy is None else policy
    stages = len(backend.config.stages)
    check_exits(stages, len(policy.expected_alive(pairs.candidates)) - 1)
    survival = Survival(len(pairs), stages, policy, pairs.windows)
    heads: Scores | None = None
    state = backend.start(pairs)
    complete = True
    for stage in range(stages):
        if stage and until is not None and time.monotonic() >= until:
            complete = False
            break
        output = backend.run(state, stage)
        if not np.isfinite(output.scores).all():
            raise NonFiniteScoreError(f"stage {stage} gave a score that is not a number")
        if output.head_scores is not None:
            heads = np.full((len(pairs), output.head_scores.shape[1]), np.nan)
            heads[survival.alive] = output.head_scores
        rows = survival.end(stage, output.scores)
        state = output.state if len(rows) == len(output.scores) else backend.select(output.state, rows)
    scores, reached, spans = survival.scores, survival.stages, None
    if pairs.windows is not None:
        scores, reached, spans, heads = pairs.windows.folded(scores, reached, heads)
    ranked = order(reached, scores)
    return Ranking(order=ranked, scores=scores, stages=reached, head_scores=heads, spans=spans, complete=complete)


def pairs_policy(config: RankerConfig, given: float | None = None) -> DropPolicy:
    """The drop policy of the stages of pairs, with the ratio `given` at every exit, or the checkpoint's if None."""
    policy = config.drop_policy(given)
    return policy if config.first_stage is None else policy.after_first()


def check_golden(
    backend: Backend[Any],
    checkpoint: Checkpoint,
    precision: str,
    *,
    encoder: PairEncoder | None = None,
    pause: Callable[[], None] = lambda: None,
) -> None:
    """Score every golden question without dropping and compare with the scores recorded for `precision`.

    If no scores are recorded for a half precision, its scores are compared with those of fp32 (`half_mismatch`).
    `encoder` must be the checkpoint's; None opens one. `pause` is called before each question. Without stages of pairs
    nothing is compared, because the first stage has a check of its own.

    Raises GoldenMismatchError if the scores do not agree or no scores are recorded.
    """
    if not checkpoint.config.reads_pairs:
        return
    encoder = encoder or checkpoint.encoder()
    keep_all = pairs_policy(checkpoint.config, 0.0)
    for golden in checkpoint.golden:
        if recorded_scores(golden, precision) is None:
            raise GoldenMismatchError(_nothing_recorded(checkpoint, precision))
        pause()
        candidates = [Candidate(text=c.text, previous=c.previous, next=c.next) for c in golden.candidates]
        got = rank_pairs(backend, encoder.encode(golden.question, candidates), keep_all).scores
        compare_golden(golden, precision, got)


def recorded_scores(golden: GoldenQuestion, precision: str) -> tuple[float, ...] | None:
    """The scores recorded for `precision`; if there are none, those of fp32 for a half precision, and else None."""
    own = golden.scores.get(precision)
    return golden.scores.get("fp32") if own is None and precision in HALF_TOLERANCE else own


def golden_tolerance(golden: GoldenQuestion, precision: str) -> float:
    """The largest allowed difference from `recorded_scores`, which must not be None."""
    return golden.tolerance[precision] if precision in golden.scores else HALF_TOLERANCE[precision]


def compare_golden(golden: GoldenQuestion, precision: str, got: Scores) -> None:
    """Raise GoldenMismatchError unless `got` agrees with `recorded_scores`, which must not be None."""
    expected = np.asarray(recorded_scores(golden, precision))
    mismatch = _difference(expected, got, golden_tolerance(golden, precision))
    if precision not in golden.scores:
        mismatch = mismatch or half_mismatch(expected, got)
    if mismatch:
        raise GoldenMismatchError(f"{golden.question!r}: {mismatch} ({precision})")


def log_odds(scores: Scores) -> Scores:
    """The logit of each probability, after clipping to `CERTAIN` from 0 and 1."""
    certain = np.clip(scores, CERTAIN, 1.0 - CERTAIN)
    return np.asarray(np.log(certain) - np.log1p(-certain))


def half_mismatch(expected: Scores, got: Scores) -> str:
    """A message on two candidates that are in another order in `got` than in fp32's `expected`; "" if there are none.

    Only pairs of candidates whose fp32 log-odds differ by more than `CLEAR_GAP` are compared. Both arrays have shape
    [n].
    """
    odds = log_odds(expected)
    wrong = (odds[:, None] - odds[None, :] > CLEAR_GAP) & ~(got[:, None] > got[None, :])
    if not wrong.any():
        return ""
    better, worse = np.argwhere(wrong)[0].tolist()
    return (
        f"candidate {better} no longer scores more than candidate {worse}: {got[better]:.4g} and {got[worse]:.4g}, "
        f"{expected[better]:.4g} and {expected[worse]:.4g} in fp32"
    )


def _difference(expected: Scores, got: Scores, tolerance: float) -> str:
    difference = float(np.abs(got - expected).max())
    if difference <= tolerance:
        return ""
    return f"scores differ from the golden ones by {difference:.3g}, more than {tolerance:g}"


def _nothing_recorded(checkpoint: Checkpoint, precision: str) -> str:
    lacks, option = f"{precision} scores", f" --precisions {precision}"
    if precision in HALF_TOLERANCE:
        lacks, option = f"{precision} or fp32 scores", ""
    command = f"cerberank export FOLDER OUT{option}"
    return f"{checkpoint.path / 'golden.jsonl'} has no {lacks}: `{command}` records them, from a FOLDER with weights"
