"""Ranks by every exit, head and drop schedule of a ranker (its variants) from one pass over the candidates.

Input: questions and a backend. Output: ranks, scores and costs for each variant. Scoring drops nothing; the candidates
that a schedule drops follow from the exits' scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.registry import open_backend
from cerberank_models.backends.stage_contract import Backend, Scores
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.config import RankerConfig
from cerberank_models.drop import UNSCORED, DropPolicy, Survival, cost_of
from cerberank_models.encoding import EncodedPairs, PairEncoder
from cerberank_models.first_stage.opening import open_first_stage
from cerberank_models.first_stage.question_texts import FirstStage
from cerberank_models.lexical import lexical_scores
from cerberank_models.rank_pairs import NonFiniteScoreError
from cerberank_models.windows import AS_SERVED, Windowing
from cerberank_training.data import Question
from cerberank_training.data.deep_questions import DeepQuestion
from cerberank_training.evaluation.question_metrics import (
    ranks_of,
)

Ranks = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AllScores:
    """The scores of all stages for all candidates of one question."""

    stages: tuple[Scores, ...]
    heads: Scores | None
    """Each head's scores, shape [n, k]; None without heads."""
    lexical: Scores | None = None
    """The scores [n] of the lexical layer (`lexical.py` of the models); None where it was not computed."""
    first_stage: bool = False
    """True if `stages` begins with a first stage."""
    in_windows: int = 0
    """The number of candidates that did not fit into one pair and were read in windows."""
    truncated: int = 0
    """The number of candidates whose end was not read."""

    def of(self, rows: NDArray[np.int64]) -> AllScores:
        """The scores of only these candidates. `in_windows` and `truncated` are left out, and the lexical scores, which
        depend on the other candidates.
        """
        heads = None if self.heads is None else self.heads[rows]
        return AllScores(tuple(stage[rows] for stage in self.stages), heads, first_stage=self.first_stage)

    def entering(self, policy: DropPolicy) -> NDArray[np.int64]:
        """The rows, ascending, that the lexical layer keeps by `policy`. Raises ValueError without its scores."""
        if not policy.lexical:
            return np.arange(len(self.stages[0]), dtype=np.int64)
        if self.lexical is None:
            raise ValueError("the lexical layer has not scored the candidates")
        return policy.lexical_survivors(self.lexical)


def score_all(backend: Backend[Any], pairs: EncodedPairs) -> AllScores:
    """Run every stage over every pair, and combine the scores of windows into the scores of candidates.

    Raises NonFiniteScoreError when a score is not a number.
    """
    state, stages, heads, windows = backend.start(pairs), [], None, pairs.windows
    for stage in range(len(backend.config.stages)):
        output = backend.run(state, stage)
        if not np.isfinite(output.scores).all():
            raise NonFiniteScoreError(f"stage {stage} gave a score that is not a number")
        stages.append(output.scores)
        state, heads = output.state, output.head_scores
    truncated = int(pairs.truncated_candidates.sum())
    if windows is None:
        return AllScores(tuple(stages), heads, truncated=truncated)
    folded = windows.folded(stages[-1], np.zeros(len(pairs), dtype=np.int64), heads)
    by_candidate = tuple(windows.by_candidate(scores) for scores in stages)
    in_windows = int((np.diff(windows.offsets) > 1).sum())
    return AllScores(by_candidate, folded.heads, in_windows=in_windows, truncated=truncated)


@dataclass(frozen=True, slots=True)
class DefaultSchedules:
    """The default schedules of a checkpoint; the number of a question's candidates chooses one of them."""

    config: RankerConfig

    def __str__(self) -> str:
        """The name in reports."""
        return "by default"

    def of(self, candidates: int) -> DropPolicy:
        """The schedule of a question with this number of candidates."""
        return self.config.drop_policy(candidates=candidates)


Dropping = DropPolicy | DefaultSchedules


def default_dropping(config: RankerConfig) -> Dropping | None:
    """The default schedule, or schedules, of a checkpoint; None if it drops nothing."""
    if config.longer_lists:
        return DefaultSchedules(config)
    return config.drop_policy() if any(config.schedule) or config.lexical_ratio else None


def default_name(config: RankerConfig) -> str:
    """The name of the variant that a checkpoint answers with."""
    default = default_dropping(config)
    return "final" if default is None else policy_name(default)


def apply_policy(scores: AllScores, policy: Dropping) -> Ranks:
    """The ranks [n] of the candidates if the lexical layer and the exits drop by `policy`."""
    policy = policy.of(len(scores.stages[0])) if isinstance(policy, DefaultSchedules) else policy
    rows = scores.entering(policy)
    survival = Survival(len(rows), len(scores.stages), policy.without_lexical())
    for stage, all_scores in enumerate(scores.stages):
        survival.end(stage, all_scores[rows[survival.alive]])
    if len(rows) == len(scores.stages[0]):
        return ranks_of(survival.scores, survival.stages)
    # What the lexical layer drops keeps its order, below all others.
    assert scores.lexical is not None
    last, reached = scores.lexical.astype(np.float64), np.full(len(scores.lexical), UNSCORED, dtype=np.int64)
    last[rows], reached[rows] = survival.scores, survival.stages
    return ranks_of(last, reached)


def flat_scores(scores: AllScores) -> dict[str, Scores]:
    """The scores [n] of every variant that drops nothing, by name: `final`, each exit, each head."""
    flat = {"final": scores.stages[-1]}
    flat |= dict(zip(stage_names(len(scores.stages) - 1, scores.first_stage), scores.stages, strict=False))
    if scores.heads is not None:
        flat |= {f"head {index}": head_scores for index, head_scores in enumerate(scores.heads.T, start=1)}
    return flat


def stage_names(count: int, first_stage: bool) -> list[str]:
    """The names of the `count` stages before the last: the first stage if there is one, then the exits.

    >>> stage_names(2, False), stage_names(2, True)
    (['exit 1', 'exit 2'], ['first stage', 'exit 1'])
    """
    return (["first stage"] * first_stage + [f"exit {index}" for index in range(1, count + 1)])[:count]


def flat_ranks(flat: Mapping[str, Scores]) -> dict[str, Ranks]:
    """The ranks [n] of each variant, from scores [n] that are comparable with each other."""
    return {name: ranks_of(scores) for name, scores in flat.items()}


def variants(scores: AllScores, policies: Sequence[Dropping]) -> dict[str, Ranks]:
    """The ranks [n] by all variants of the model's ranking, by name."""
    return flat_ranks(flat_scores(scores)) | dropping_ranks(scores, policies)


def dropping_ranks(scores: AllScores, policies: Iterable[Dropping]) -> dict[str, Ranks]:
    """The ranks [n] by each drop policy, by name."""
    return {policy_name(policy): apply_policy(scores, policy) for policy in policies}


def variant_costs(config: RankerConfig, policies: Sequence[Dropping], sizes: Sequence[int]) -> dict[str, float]:
    """The cost of each variant, relative to all layers on all candidates. One head counts as much as all heads.

    `sizes` are the questions' numbers of candidates. Ties that the lexical layer keeps are counted as dropped.
    """
    layers, total = config.scored_stage_layers, sum(config.scored_stage_layers)
    names = stage_names(len(layers) - 1, config.first_stage is not None)
    costs = {"final": 1.0}
    costs |= {name: sum(layers[:stage]) / total for stage, name in enumerate(names, start=1)}
    costs |= {f"head {head}": 1.0 for head in range(1, config.architecture.heads + 1)}
    for policy in policies:
        if isinstance(policy, DefaultSchedules):
            each = (size * cost_of([size], layers, policy.of(size)) for size in sizes)
            costs[policy_name(policy)] = sum(each) / sum(sizes)
        else:
            costs[policy_name(policy)] = cost_of(sizes, layers, policy)
    return costs


def policy_name(policy: Dropping) -> str:
    """The policy's name in reports, such as `drop 0.3,0.3`."""
    return f"drop {policy}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scorer:
    """A ranker that is ready to score questions at all of its stages."""

    backend: Backend[Any]
    encoder: PairEncoder
    first: FirstStage | None = None
    """The first stage, which always cuts long texts; its scores come before the others."""
    windowing: Windowing | None = AS_SERVED
    """The reading of long texts in windows; None cuts them."""

    @classmethod
    def open(
        cls,
        checkpoint: Checkpoint,
        *,
        kind: str,
        precision: str,
        device: str = "cpu",
        windowing: Windowing | None = AS_SERVED,
    ) -> Scorer:
        """Open a checkpoint, with its first stage if it has one. Raises the errors of `open_backend`."""
        form: dict[str, Any] = {"kind": kind, "precision": precision, "device": device}
        first = None if checkpoint.config.first_stage is None else open_first_stage(checkpoint, **form)
        backend = open_backend(checkpoint, **form)
        return cls(backend=backend, encoder=checkpoint.encoder(), first=first, windowing=windowing)

    def scores(self, question: Question) -> AllScores:
        """The scores of a question's candidates at all stages. Raises NonFiniteScoreError, which names the question."""
        candidates = [labelled.candidate for labelled in question.candidates]
        reads_pairs = self.backend.config.reads_pairs
        try:
            scores = AllScores((), None)
            if reads_pairs:
                pairs = self.encoder.encode(question.text, candidates, windowing=self.windowing)
                scores = replace(score_all(self.backend, pairs), lexical=lexical_scores(self.encoder, pairs))
            if self.first is not None:
                texts = self.first.read(question.text, [candidate.text for candidate in candidates])
                truncated = scores.truncated if reads_pairs else int(texts.truncated.sum())
                stages = (self.first.compute(texts), *scores.stages)
                scores = replace(scores, stages=stages, first_stage=True, truncated=truncated)
        except NonFiniteScoreError as error:
            raise NonFiniteScoreError(f"question {question.id!r}: {error}") from error
        return scores

    def lexical(self, question: Question) -> Scores | None:
        """The lexical scores [n] of a question's candidates; None for a ranker that reads no pairs."""
        if not self.backend.config.reads_pairs:
            return None
        candidates = [labelled.candidate for labelled in question.candidates]
        return lexical_scores(self.encoder, self.encoder.encode(question.text, candidates, windowing=self.windowing))


def score_questions(scorer: Scorer, questions: Iterable[Question]) -> Iterator[tuple[Question, AllScores]]:
    """Yield each question with the scores of all stages."""
    return ((question, scorer.scores(question)) for question in questions)


def score_depths(scorer: Scorer, questions: Iterable[DeepQuestion]) -> Iterator[list[tuple[int, Question, AllScores]]]:
    """Yield a list for each question, with (depth, question, scores) for each of its depths."""
    for deep in questions:
        scores = scorer.scores(deep.question)
        at_depths = [(depth, deep.at(depth)) for depth in deep.depths]
        yield [
            (depth, question, replace(scores.of(deep.rows(depth)), lexical=scorer.lexical(question)))
            for depth, question in at_depths
        ]


def rank_questions(
    scorer: Scorer, questions: Iterable[Question], policies: Sequence[Dropping] = ()
) -> Iterator[tuple[Question, dict[str, Ranks]]]:
    """Yield each question with its ranks by all variants."""
    return ((question, variants(scorer.scores(question), policies)) for question in questions)
