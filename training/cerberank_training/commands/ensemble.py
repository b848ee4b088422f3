"""`cerberank eval ensemble`: a linear combination of models' scores, weights tuned on dev, reported on test.

Takes per-question files of `cerberank evaluate`, the models in the same order for dev and test. Files over different
candidates are rejected. --per-question writes the test rankings of the tuned ensemble (`final`) and of equal weights
(`uniform`), for `cerberank eval compare`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cerberank_models.checkpoint.atomic import replacing, write_json
from cerberank_training.data import DataError
from cerberank_training.evaluation.ensemble import (
    EnsembleQuestion,
    ensemble_record,
    gather,
    mean_metric,
    single,
    tune_weights,
)
from cerberank_training.evaluation.metrics import METRICS, TITLES
from cerberank_training.evaluation.per_question import check_same_candidates, read_records, write_record
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
        sets = (
            {metric: 100.0 * mean_metric(questions, weights, metric) for metric in METRICS} for questions in (dev, test)
        )
        return cls(weights, *sets)


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        _run(arguments)
    except (ValueError, OSError) as error:
        print(f"cerberank eval ensemble: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cerberank eval ensemble", description=__doc__)
    parser.add_argument("--dev", type=Path, nargs="+", required=True, metavar="FILE", help="one file per model")
    parser.add_argument("--test", type=Path, nargs="+", required=True, metavar="FILE", help="files in the same order")
    parser.add_argument("--ranking", default="final", help="which ranking of the files (default: final)")
    parser.add_argument("--metric", choices=METRICS, default="map", help="what the weights are tuned for")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write weights and figures here")
    parser.add_argument("--per-question", type=Path, help="write the ensembles' test rankings here")
    return parser


def _run(arguments: argparse.Namespace) -> None:
    if not 2 <= len(arguments.dev) == len(arguments.test):
        raise DataError("an ensemble takes two models or more, each with one --dev and one --test file")
    dev, test = (_gather(paths, arguments.ranking) for paths in (arguments.dev, arguments.test))
    models = len(arguments.dev)
    tuned = tune_weights(dev, metric=arguments.metric, trials=arguments.trials, seed=arguments.seed)
    systems = {f"{index + 1}. {path.stem}": single(index, models) for index, path in enumerate(arguments.test)}
    systems |= {"uniform": (1.0 / models,) * models, "tuned": tuned}
    figures = {name: SystemFigures.of(weights, dev, test) for name, weights in systems.items()}
    header = ["system", "weights", "dev MAP", *(f"test {title}" for title in TITLES.values())]
    print(table(header, [_row(name, row) for name, row in figures.items()]))  # noqa: T201
    if arguments.per_question:
        with replacing(arguments.per_question) as file:
            for question in test:
                write_record(file, ensemble_record(question, {"final": tuned, "uniform": systems["uniform"]}))
    if arguments.json:
        settings = {name: getattr(arguments, name) for name in ("ranking", "metric", "trials", "seed")}
        write_json(arguments.json, {**settings, "systems": {name: asdict(row) for name, row in figures.items()}})


def _gather(paths: Sequence[Path], ranking: str) -> list[EnsembleQuestion]:
    models = [read_records(path, ranking=ranking) for path in paths]
    for path, records in zip(paths[1:], models[1:], strict=True):
        check_same_candidates((paths[0], models[0]), (path, records))
    return gather(models, ranking=ranking)


def _row(name: str, figures: SystemFigures) -> list[str]:
    weights = ", ".join(f"{weight:.2f}" for weight in figures.weights)
    return [name, weights, f"{figures.dev['map']:.2f}", *(f"{figures.test[metric]:.2f}" for metric in METRICS)]
