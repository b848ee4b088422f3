"""Ranks one question's pairs through the stages of a backend, without the service's engine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import Backend, Scores
from cerberank_models.config import RankerConfig
from cerberank_models.drop import DropPolicy, Survival, check_exits, order
from cerberank_models.encoding import EncodedPairs


class NonFiniteScoreError(ArithmeticError):
    """A stage computed NaN or infinity, which cannot be ranked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The result for n candidates. `order` lists the candidates, best first; the other arrays are by candidate."""

    order: NDArray[np.int64]
    scores: Scores
    """Shape [n]: the score at the last stage that the candidate reached."""
    stages: NDArray[np.int64]
    """Shape [n]: the last stage that the candidate reached, counted from 0."""
    heads: Scores | None
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
    After the time `until` (of `time.monotonic`) no further stage is started, but stage 0 always runs.

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
        # Stage 0 always runs, so that every pair has a score.
        if stage and until is not None and time.monotonic() >= until:
            complete = False
            break
        output = backend.run(state, stage)
        if not np.isfinite(output.scores).all():
            raise NonFiniteScoreError(f"stage {stage} gave a score that is not a number")
        if output.head_scores is not None:
            heads = np.full((len(pairs), output.head_scores.shape[1]), np.nan)
            heads[survival.alive] = output.head_scores
        # The rows that stay alive go on to the next stage.
        rows = survival.end(stage, output.scores)
        state = output.state if len(rows) == len(output.scores) else backend.select(output.state, rows)
    # The scores of windows become those of candidates.
    scores, reached, spans = survival.scores, survival.stages, None
    if pairs.windows is not None:
        scores, reached, spans, heads = pairs.windows.folded(scores, reached, heads)
    best_first = order(reached, scores)
    return Ranking(order=best_first, scores=scores, stages=reached, heads=heads, spans=spans, complete=complete)


def pairs_policy(config: RankerConfig, ratio: float | None = None) -> DropPolicy:
    """The drop policy of the stages of pairs, with `ratio` at every exit, or the checkpoint's if None."""
    policy = config.drop_policy(ratio)
    return policy if config.first_stage is None else policy.after_first()
