"""Ranks the pairs of questions through the stages of a backend, without the service's engine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import Backend, Scores
from cerberank_models.config import RankerConfig
from cerberank_models.drop import DropPolicy, Survival, check_exits, order
from cerberank_models.encoding import EncodedPairs, concat_pairs


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
    policy = pairs_policy(backend.config) if policy is None else policy
    (ranking,) = rank_together(backend, [(pairs, policy)], until=until)
    return ranking


def rank_together(
    backend: Backend[Any], questions: Sequence[tuple[EncodedPairs, DropPolicy]], *, until: float | None = None
) -> list[Ranking]:
    """The rankings of several questions, whose pairs run through each stage together. Like `rank_pairs`."""
    if not questions:
        return []
    stages = len(backend.config.stages)
    running = []
    for pairs, policy in questions:
        if len(pairs) == 0:
            raise ValueError("there must be at least one candidate")
        check_exits(stages, len(policy.expected_alive(pairs.candidates)) - 1)
        running.append(_Question(pairs, Survival(len(pairs), stages, policy, pairs.windows)))
    state = backend.start(running[0].pairs if len(running) == 1 else concat_pairs([each.pairs for each in running]))
    complete = True
    for stage in range(stages):
        # Stage 0 always runs, so that every pair has a score.
        if stage and until is not None and time.monotonic() >= until:
            complete = False
            break
        output = backend.run(state, stage)
        if not np.isfinite(output.scores).all():
            raise NonFiniteScoreError(f"stage {stage} gave a score that is not a number")
        # Each question drops among its own rows. Those that stay alive go on to the next stage.
        kept, start = [], 0
        for question in running:
            end = start + len(question.survival.alive)
            heads = None if output.head_scores is None else output.head_scores[start:end]
            kept.append(start + question.end(stage, output.scores[start:end], heads))
            start = end
        rows = np.concatenate(kept)
        state = output.state if len(rows) == len(output.scores) else backend.select(output.state, rows)
    return [question.ranking(complete=complete) for question in running]


@dataclass(slots=True)
class _Question:
    """A question whose pairs are being ranked."""

    pairs: EncodedPairs
    survival: Survival
    heads: Scores | None = None

    def end(self, stage: int, scores: Scores, heads: Scores | None) -> NDArray[np.int64]:
        """End a stage with the scores of the rows alive; returns the places among them of those that go on."""
        if heads is not None:
            self.heads = np.full((len(self.pairs), heads.shape[1]), np.nan)
            self.heads[self.survival.alive] = heads
        return self.survival.end(stage, scores)

    def ranking(self, *, complete: bool) -> Ranking:
        """The ranking, in which the scores of windows have become those of candidates."""
        scores, reached, heads, spans = self.survival.scores, self.survival.stages, self.heads, None
        if self.pairs.windows is not None:
            scores, reached, spans, heads = self.pairs.windows.folded(scores, reached, heads)
        best_first = order(reached, scores)
        return Ranking(order=best_first, scores=scores, stages=reached, heads=heads, spans=spans, complete=complete)


def pairs_policy(config: RankerConfig, ratio: float | None = None) -> DropPolicy:
    """The drop policy of the stages of pairs, with `ratio` at every exit, or the checkpoint's if None."""
    policy = config.drop_policy(ratio)
    return policy if config.first_stage is None else policy.after_first()
