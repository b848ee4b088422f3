"""Checks that a backend reproduces the scores of a checkpoint's golden questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cerberank_models.backends.stage_contract import Backend, Scores
from cerberank_models.calibration import log_odds_of
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.manifest import GoldenQuestion
from cerberank_models.encoding import PairEncoder
from cerberank_models.rank_pairs import pairs_policy, rank_pairs

HALF_TOLERANCE = {"fp16": 0.02, "bf16": 0.1}
"""The largest allowed difference between scores in half precision and the recorded fp32 scores.

With MiniLM's weights the largest measured error of a logit is .013 in fp16 and .14 in bf16. A probability changes by at
most a quarter of that: .003 and .035. The bounds are six and three times these errors, because deeper networks round
more often.
"""
CLEAR_GAP = 1.0
"""Candidates whose log-odds differ by more than this must keep their order in every precision. The value is seven times
bf16's largest error."""


class GoldenMismatchError(RuntimeError):
    """The backend does not reproduce the golden scores, the scores of example questions recorded in the checkpoint."""


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
        got = rank_pairs(backend, encoder.encode(golden.question, golden.texts), keep_all).scores
        compare_golden(golden, precision, got)


def recorded_scores(golden: GoldenQuestion, precision: str) -> tuple[float, ...] | None:
    """The scores recorded for `precision`; if there are none, those of fp32 for a half precision, and else None."""
    scores = golden.scores.get(precision)
    return golden.scores.get("fp32") if scores is None and precision in HALF_TOLERANCE else scores


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


def half_mismatch(expected: Scores, got: Scores) -> str:
    """A message on two candidates that are in another order in `got` than in fp32's `expected`; "" if there are none.

    Only pairs of candidates whose fp32 log-odds differ by more than `CLEAR_GAP` are compared. Both arrays have shape
    [n].
    """
    log_odds = log_odds_of(expected)
    wrong = (log_odds[:, None] - log_odds[None, :] > CLEAR_GAP) & ~(got[:, None] > got[None, :])
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
    lacks, option = f"{precision} scores", f" --forms {precision}"
    if precision in HALF_TOLERANCE:
        lacks, option = f"{precision} or fp32 scores", ""
    command = f"cerberank export FOLDER OUT{option}"
    return f"{checkpoint.path / 'golden.jsonl'} has no {lacks}: `{command}` records them, from a FOLDER with weights"
