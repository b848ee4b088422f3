"""Linear combinations of several models' scores, the baseline ensembles of CERBERUS Table 2.

Input: records of the same candidates by several models. Output: weights with the sum 1, which Optuna chooses on dev
data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import optuna
from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import Scores
from cerberank_training.data import DataError
from cerberank_training.evaluation.per_question import QuestionRecord, RankingRecord, Records
from cerberank_training.evaluation.question_metrics import METRICS, expected_metrics, ranks_of


@dataclass(frozen=True, slots=True)
class EnsembleQuestion:
    """One question's record, and every model's scores [m, n]."""

    record: QuestionRecord
    scores: Scores

    def ranked(self, weights: Sequence[float]) -> tuple[Scores, NDArray[np.int64]]:
        """The scores [n] and ranks [n] of the linear combination."""
        scores = np.asarray(weights, dtype=np.float64) @ self.scores
        return scores, ranks_of(scores)

    def metrics(self, ranks: NDArray[np.int64], names: Sequence[str] = METRICS) -> dict[str, float]:
        """The metrics (0 to 1) of the question's ranks [n]."""
        return expected_metrics(np.asarray(self.record.labels), ranks, self.record.missed, names)


def gather(models: Sequence[Records], *, ranking: str = "final") -> list[EnsembleQuestion]:
    """Join the scores of all models for each question. All records must have the same candidates.

    Raises DataError for a ranking without scores.
    """
    questions = []
    for name, first in models[0].items():
        rows = [records[name].rankings[ranking].scores for records in models]
        if any(row is None for row in rows):
            raise DataError(f"{ranking!r} has no comparable scores for question {name!r}, so they cannot be added")
        questions.append(EnsembleQuestion(first, np.asarray(rows, dtype=np.float64)))
    return questions


def mean_metrics(
    questions: Sequence[EnsembleQuestion], weights: Sequence[float], names: Sequence[str] = METRICS
) -> dict[str, float]:
    """The means of the metrics (0 to 1) over questions with a positive. Raises ValueError if there are none."""
    rows = [each.metrics(each.ranked(weights)[1], names) for each in questions if each.record.answerable]
    if not rows:
        raise ValueError("no question has a positive candidate")
    return {name: float(np.mean([row[name] for row in rows])) for name in names}


def ensemble_record(question: EnsembleQuestion, systems: Mapping[str, Sequence[float]]) -> QuestionRecord:
    """The per-question record of a question, with a ranking for each tuple of weights, by its name."""
    rankings = {}
    for name, weights in systems.items():
        scores, ranks = question.ranked(weights)
        rankings[name] = RankingRecord(
            metrics=question.metrics(ranks) if question.record.answerable else {},
            ranks=tuple(ranks.tolist()),
            scores=tuple(scores.tolist()),
        )
    return question.record.model_copy(update={"rankings": rankings})


def single(model: int, models: int) -> tuple[float, ...]:
    """The weights that select one model.

    >>> single(1, 3)
    (0.0, 1.0, 0.0)
    """
    return tuple(float(index == model) for index in range(models))


def tune_weights(
    questions: Sequence[EnsembleQuestion], *, metric: str = "map", trials: int = 200, seed: int = 0
) -> tuple[float, ...]:
    """The best weights that Optuna's TPE finds on `questions`. Of equal results the earlier one is kept.

    Equal weights and each single model are tried first, so that the result is at least as good as these.
    """
    models = len(questions[0].scores)
    optuna.logging.disable_default_handler()
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    starts = [(1.0,) * models, *(single(model, models) for model in range(models))]
    for start in starts:
        study.enqueue_trial({f"w{index}": weight for index, weight in enumerate(start)})

    def value(trial: optuna.Trial) -> float:
        drawn = [trial.suggest_float(f"w{index}", 0.0, 1.0) for index in range(models)]
        return mean_metrics(questions, _normalised(drawn), [metric])[metric]

    study.optimize(value, n_trials=max(trials, len(starts)))
    return _normalised([study.best_params[f"w{index}"] for index in range(models)])


def _normalised(weights: Sequence[float]) -> tuple[float, ...]:
    """The weights scaled to a sum of 1; equal weights if all are 0."""
    total = sum(weights)
    return tuple(weight / total if total else 1.0 / len(weights) for weight in weights)
