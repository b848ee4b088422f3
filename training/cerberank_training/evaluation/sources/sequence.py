"""SR, the sequential reranker: a cascade of independent models without shared layers (CT sections 3.2, 4.2, 5.4).

Input: checkpoints from the shallowest to the deepest. Each model scores the candidates that the model before it has
kept. The cost of a candidate is the number of layers of all models that score it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.drop import DropPolicy, cost_of
from cerberank_training.data import Question
from cerberank_training.evaluation.sources.rankings import RankedQuestion
from cerberank_training.evaluation.variants import AllScores, Scorer, dropping_ranks, flat_ranks, policy_name


def sequence_cost(sizes: Sequence[int], layers: Sequence[float], policy: DropPolicy) -> float:
    """The cost of questions with `sizes` candidates, relative to the last model on all candidates.

    For the example, CT section 5.4 has 1.54, 1.18 and 0.90.

    >>> from cerberank_models.drop import RatioSchedule
    >>> layers, policies = (4, 6, 8, 10, 12), [RatioSchedule((alpha,) * 4) for alpha in (0.3, 0.4, 0.5)]
    >>> [round(sequence_cost([10_000], layers, policy), 2) for policy in policies]
    [1.54, 1.18, 0.92]
    """
    return cost_of(sizes, layers, policy) * sum(layers) / layers[-1]


def sequence_costs(
    checkpoints: Sequence[Checkpoint], policies: Sequence[DropPolicy], sizes: Sequence[int]
) -> dict[str, float]:
    """The cost of each variant of `sequence_rankings`, for questions with `sizes` candidates."""
    layers = [sum(checkpoint.config.stage_layers) for checkpoint in checkpoints]
    alone = {f"model {index}": own / layers[-1] for index, own in enumerate(layers[:-1], start=1)}
    dropping = {policy_name(policy): sequence_cost(sizes, layers, policy) for policy in policies}
    return {"final": 1.0} | alone | dropping


def sequence_rankings(
    scorers: Sequence[Scorer], questions: Sequence[Question], policies: Sequence[DropPolicy]
) -> Iterator[RankedQuestion]:
    """Rank by the last model (`final`), by each earlier model (`model i`), and by the sequence with every policy."""
    for question in questions:
        scored = [scorer.scores(question) for scorer in scorers]
        finals = AllScores(tuple(scores.stages[-1] for scores in scored), None)
        flat = {"final": finals.stages[-1]}
        flat |= {f"model {index}": scores for index, scores in enumerate(finals.stages[:-1], start=1)}
        yield RankedQuestion(
            question=question,
            ranks=flat_ranks(flat) | dropping_ranks(finals, policies),
            scores=flat,
            in_windows=scored[-1].in_windows,
            truncated=scored[-1].truncated,
        )
