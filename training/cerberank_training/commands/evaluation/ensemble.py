"""`cerberank results ensemble`: a linear combination of models' scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from cerberank_models.checkpoint.atomic import replacing, write_json
from cerberank_models.commands.values import Whole
from cerberank_models.output import say, say_written
from cerberank_training.data import DataError
from cerberank_training.evaluation.linear_ensemble import (
    EnsembleQuestion,
    ensemble_record,
    gather,
    mean_metrics,
    single,
    tune_weights,
)
from cerberank_training.evaluation.per_question import check_same_candidates, read_records, write_record
from cerberank_training.evaluation.question_metrics import METRICS, TITLES
from cerberank_training.evaluation.report import table


@dataclass(frozen=True, slots=True)
class SystemFigures:
    """The weights of a single model or an ensemble, and its metrics in percent on dev and test."""

    weights: tuple[float, ...]
    dev: dict[str, float]
    test: dict[str, float]

    @classmethod
    def of(
        cls, weights: tuple[float, ...], dev: Sequence[EnsembleQuestion], test: Sequence[EnsembleQuestion]
    ) -> SystemFigures:
        """Measure both sets."""
        means = (mean_metrics(questions, weights) for questions in (dev, test))
        return cls(weights, *({name: 100.0 * value for name, value in each.items()} for each in means))


def ensemble(
    *,
    dev: tuple[Path, ...],
    test: tuple[Path, ...],
    ranking: str = "final",
    measure: Literal["map", "mrr", "p@1"] = "map",
    trials: Whole = 200,
    seed: Whole = 0,
    json: Path | None = None,
    per_question: Path | None = None,
) -> dict[str, SystemFigures]:
    """Combine the scores of models linearly, with weights that are tuned on dev, and report on test.

    Takes per-question files of `evaluate`. Files over different candidates are rejected. --per-question writes the test
    rankings of the tuned ensemble (`final`) and of equal weights (`uniform`), for `results compare`.

    Args:
        dev: Per-question file on dev, once for each model.
        test: Per-question file on test, once for each model in the same order.
        ranking: Row of `evaluate` to take from every file, such as `exit 1`.
        measure: Measure that the weights are tuned for.
        trials: Trials of Optuna.
        seed: Random seed.
        json: File for weights and figures.
        per_question: File for the ensembles' test rankings.
    """
    if not 2 <= len(dev) == len(test):
        raise DataError("an ensemble takes two models or more, each with one --dev and one --test file")
    dev_set, test_set = (_gather(list(paths), ranking) for paths in (dev, test))
    models = len(dev)
    tuned = tune_weights(dev_set, metric=measure, trials=trials, seed=seed)
    systems = {f"{index + 1}. {path.stem}": single(index, models) for index, path in enumerate(test)}
    systems |= {"uniform": (1.0 / models,) * models, "tuned": tuned}
    figures = {name: SystemFigures.of(weights, dev_set, test_set) for name, weights in systems.items()}
    header = ["system", "weights", "dev MAP", *(f"test {title}" for title in TITLES.values())]
    say(table(header, [_row(name, row) for name, row in figures.items()]))
    if per_question:
        with replacing(per_question) as file:
            for question in test_set:
                write_record(file, ensemble_record(question, {"final": tuned, "uniform": systems["uniform"]}))
    if json:
        settings = {"ranking": ranking, "metric": measure, "trials": trials, "seed": seed}
        write_json(json, {**settings, "systems": {name: asdict(row) for name, row in figures.items()}})
    say_written(
        (per_question, "test rankings of the tuned ensemble and of equal weights"),
        (json, "weights and figures"),
    )
    return figures


def _gather(paths: Sequence[Path], ranking: str) -> list[EnsembleQuestion]:
    models = [read_records(path, ranking=ranking) for path in paths]
    for path, records in zip(paths[1:], models[1:], strict=True):
        check_same_candidates((paths[0], models[0]), (path, records))
    return gather(models, ranking=ranking)


def _row(name: str, figures: SystemFigures) -> list[str]:
    weights = ", ".join(f"{weight:.2f}" for weight in figures.weights)
    return [name, weights, f"{figures.dev['map']:.2f}", *(f"{figures.test[metric]:.2f}" for metric in METRICS)]
