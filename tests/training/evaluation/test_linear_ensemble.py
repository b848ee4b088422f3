from __future__ import annotations

import numpy as np
import pytest

from cerberank_training.data import DataError
from cerberank_training.evaluation.linear_ensemble import (
    EnsembleQuestion,
    ensemble_record,
    gather,
    mean_metrics,
    single,
    tune_weights,
)
from cerberank_training.evaluation.per_question import QuestionRecord, RankingRecord


def records(scores: dict[str, list[float]], labels: dict[str, list[int]]) -> dict[str, QuestionRecord]:
    return {
        name: QuestionRecord(
            id=name,
            candidates="same",
            labels=tuple(labels[name]),
            rankings={
                "final": RankingRecord(
                    metrics={}, ranks=tuple(np.argsort(np.argsort(-np.asarray(row))).tolist()), scores=tuple(row)
                )
            },
        )
        for name, row in scores.items()
    }


def noisy_models(models: int, seed: int) -> list[EnsembleQuestion]:
    """Models that see the labels through noise, the last with much more noise."""
    rng = np.random.default_rng(seed)
    labels = {str(q): [1, *rng.integers(0, 2, 7).tolist()] for q in range(60)}
    noise = [0.7] * (models - 1) + [5.0]
    return gather(
        [
            records(
                {name: (np.asarray(row) + rng.normal(0, level, len(row))).tolist() for name, row in labels.items()},
                labels,
            )
            for level in noise
        ]
    )


def test_tuned_weights_beat_every_model_and_equal_weights_on_dev() -> None:
    """With a bad third model the tuned weights are strictly better, and the result is repeatable."""
    questions = noisy_models(3, seed=1)
    weights = tune_weights(questions, trials=60, seed=3)
    best = mean_metrics(questions, weights)["map"]
    assert sum(weights) == pytest.approx(1.0)
    assert best > max(mean_metrics(questions, single(model, 3))["map"] for model in range(3))
    assert best > mean_metrics(questions, (1 / 3,) * 3)["map"]
    assert weights[2] == min(weights)
    assert weights == tune_weights(questions, trials=60, seed=3)


def test_a_record_holds_the_combined_scores_and_their_metrics() -> None:
    """0.5 * [0, 1, .2] + 0.5 * [1, 0, .2] ties the first two; of equal models alone, order and metrics are theirs."""
    labels = {"q": [1, 0, 0]}
    (question,) = gather([records({"q": [0.0, 1.0, 0.2]}, labels), records({"q": [1.0, 0.0, 0.2]}, labels)])
    line = ensemble_record(question, {"final": (0.5, 0.5), "second": (0.0, 1.0)})
    assert line.rankings["final"].scores == (0.5, 0.5, 0.2)
    assert line.rankings["final"].ranks == (0, 0, 1)
    assert line.rankings["final"].metrics["map"] == 0.75
    assert line.rankings["second"].metrics["map"] == 1.0


def test_rankings_without_scores_cannot_be_combined() -> None:
    """A ranking with drops is refused, because its scores are from different exits."""
    first = records({"q": [0.1, 0.2]}, {"q": [1, 0]})
    ranking = RankingRecord(metrics={}, ranks=(0, 1))
    second = {"q": first["q"].model_copy(update={"rankings": {"final": ranking}})}
    with pytest.raises(DataError, match="no comparable scores for question 'q'"):
        gather([first, second])


def test_weights_need_a_question_with_a_positive() -> None:
    """Without a positive there is an error, because all weights would be equally good."""
    questions = gather([records({"q": [0.1, 0.2]}, {"q": [0, 0]})] * 2)
    with pytest.raises(ValueError, match="no question has a positive"):
        tune_weights(questions, trials=5)
