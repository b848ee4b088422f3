"""Ranks one question's candidates through all stages, offline: without the service's engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.contract import Backend, Scores
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.drop import DropPolicy, Survival, check_exits, order
from cerberank_models.encoding import Candidate, EncodedPairs, PairEncoder


class NonFiniteScoreError(ArithmeticError):
    """A stage gave NaN or infinity, which cannot be ranked."""


class GoldenMismatchError(RuntimeError):
    """The backend does not reproduce the checkpoint's golden scores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The result for n candidates; arrays are by candidate, `order` lists candidates best first."""

    order: NDArray[np.int64]
    scores: Scores
    """Shape [n]: the score at the last stage that the candidate reached."""
    stages: NDArray[np.int64]
    """Shape [n]: that stage, counted from 0."""
    head_scores: Scores | None
    """Shape [n, k], NaN for candidates that were dropped before the heads; None without heads."""


def rank_pairs(backend: Backend[Any], pairs: EncodedPairs, policy: DropPolicy | None = None) -> Ranking:
    """Run the stages over one question's pairs, dropping by `policy` (None: the checkpoint's own).

    Raises ValueError without candidates or for a policy with a different number of stages, NonFiniteScoreError when a
    score is NaN.
    """
    if len(pairs) == 0:
        raise ValueError("there must be at least one candidate")
    policy = backend.config.drop_policy() if policy is None else policy
    stages = len(backend.config.stages)
    check_exits(stages, len(policy.expected_alive(len(pairs))) - 1)
    survival = Survival(len(pairs), stages, policy)
    heads: Scores | None = None
    state = backend.start(pairs)
    for stage in range(stages):
        output = backend.run(state, stage)
        if not np.isfinite(output.scores).all():
            raise NonFiniteScoreError(f"stage {stage} gave a score that is not a number")
        if output.head_scores is not None:
            heads = np.full((len(pairs), output.head_scores.shape[1]), np.nan)
            heads[survival.alive] = output.head_scores
        rows = survival.end(stage, output.scores)
        state = output.state if len(rows) == len(output.scores) else backend.select(output.state, rows)
    return Ranking(
        order=order(survival.stages, survival.scores),
        scores=survival.scores,
        stages=survival.stages,
        head_scores=heads,
    )


def check_golden(
    backend: Backend[Any],
    checkpoint: Checkpoint,
    precision: str,
    *,
    encoder: PairEncoder | None = None,
    pause: Callable[[], None] = lambda: None,
) -> None:
    """Score every golden question without dropping.

    `encoder` is one of the checkpoint's; None makes one. `pause` is called before each question.
    Raises GoldenMismatchError when a score lies outside its tolerance or the precision has no recorded scores.
    """
    encoder = encoder or checkpoint.encoder()
    keep_all = checkpoint.config.drop_policy(0.0)
    for golden in checkpoint.golden:
        if precision not in golden.scores:
            raise GoldenMismatchError(f"golden.jsonl has no {precision} scores")
        pause()
        candidates = [Candidate(text=c.text, previous=c.previous, next=c.next) for c in golden.candidates]
        got = rank_pairs(backend, encoder.encode(golden.question, candidates), keep_all).scores
        difference = float(np.abs(got - np.asarray(golden.scores[precision])).max())
        if not difference <= golden.tolerance[precision]:
            raise GoldenMismatchError(
                f"{golden.question!r}: scores differ from the golden ones by {difference:.3g}, "
                f"more than {golden.tolerance[precision]:g} ({precision})"
            )
