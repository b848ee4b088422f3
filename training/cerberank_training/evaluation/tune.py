"""Searches a cascade's drop schedule {alpha_1..alpha_m} on dev data (CT section 5.5 and footnote 3: left open).

In: every stage's scores of every dev question, computed once. Out: the cost and the loss of each schedule, the best
schedules at every cost, and the one to use. Two searches share their measurements: the paper's grid, and Optuna's TPE
with smaller steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import numpy as np
import optuna
from numpy.typing import NDArray

from cerberank_models.config import TunedSchedule
from cerberank_models.drop import DropPolicy, RatioSchedule, cost_of, relative_cost
from cerberank_models.progress import progress
from cerberank_training.data import Question
from cerberank_training.evaluation.evaluate import AllScores, Ranks, apply_policy, policy_name
from cerberank_training.evaluation.metrics import METRICS, TITLES, expected_metrics

GRID = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
"""The paper's ratios, and 0."""
STEP, MOST = 0.05, 0.95
"""The step and the largest value of Optuna's ratios."""
BUDGETS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
"""Costs for each of which a service gets one schedule to choose."""

Schedule = tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A schedule's results on the dev questions; metrics in percent."""

    schedule: Schedule
    cost: float
    """The cost relative to dropping nothing, in the limit of many candidates."""
    dev_cost: float
    """As `cost`, for the dev questions' numbers of candidates: with few candidates a ratio may drop none."""
    metrics: dict[str, float]
    metric: str = "map"
    """The one of `metrics` that decides."""
    loss: float
    """The points of `metric` lost against dropping nothing."""
    loss_error: float | None
    """Standard error of `loss` over the questions; None for a single question."""

    def tuned(self) -> TunedSchedule:
        """The schedule in the form of a checkpoint's config."""
        metrics = {**self.metrics, f"{self.metric}_loss": self.loss}
        if self.loss_error is not None:
            metrics[f"{self.metric}_loss_error"] = self.loss_error
        rounded = {name: round(value, 3) for name, value in metrics.items()}
        return TunedSchedule(schedule=self.schedule, cost=self.cost, metrics=rounded)


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningBounds:
    """How much a schedule may lose and cost; with `max_loss` the cheapest within both is best, else the most accurate.

    Loss and accuracy are those of the metric that decides (`Measured.metric`).
    """

    max_loss: float | None = None
    """The most points that may be lost."""
    max_cost: float | None = None

    def excess(self, point: Measured) -> float:
        """By how much the bounds are exceeded; 0 within the bounds."""
        loss = 0.0 if self.max_loss is None else point.loss - self.max_loss
        cost = 0.0 if self.max_cost is None else point.cost - self.max_cost
        return max(0.0, loss) + max(0.0, cost)

    def order(self, point: Measured) -> tuple[float, float, float]:
        """A sort key: better points have larger keys, and points within the bounds are better than all others."""
        accuracy = point.metrics[point.metric]
        rest = (accuracy, -point.cost) if self.max_loss is None else (-point.cost, accuracy)
        return (-self.excess(point), *rest)

    def value(self, point: Measured) -> float:
        """The key's leading part as one number for Optuna: in 0..1 within the bounds, negative outside."""
        if excess := self.excess(point):
            return -excess
        return point.metrics[point.metric] / 100.0 if self.max_loss is None else 1.0 - point.cost


class Measure(Protocol):
    """What the ranking under a schedule is held against."""

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics; the first one decides."""

    @property
    def needs(self) -> str:
        """What a question must have to be measured, for messages."""

    def usable(self, question: Question) -> bool:
        """Whether the metrics are defined for the question."""

    def values(self, question: Question, scores: AllScores, ranks: Ranks) -> Sequence[float]:
        """Each metric, in 0..1, of `ranks` [n] that a schedule gives the candidates whose `scores` are known."""


@dataclass(frozen=True, slots=True)
class AgainstLabels:
    """The labels of dev data: MAP decides."""

    names: tuple[str, ...] = METRICS
    needs: str = "a positive candidate"

    def usable(self, question: Question) -> bool:
        """A question with a positive."""
        return question.answerable

    def values(self, question: Question, scores: AllScores, ranks: Ranks) -> Sequence[float]:
        """Expectations over ties; `scores` are not read."""
        row = expected_metrics(np.asarray(question.labels), ranks, question.missed)
        return [row[name] for name in self.names]


class DevSet:
    """Measures schedules, each once, on the questions that can be measured."""

    def __init__(
        self,
        stage_layers: Sequence[float],
        scored: Iterable[tuple[Question, AllScores]],
        *,
        minimum: int = 1,
        measure: Measure = AgainstLabels(),
    ) -> None:
        """Keep questions and scores; every schedule leaves at least `minimum` candidates alive.

        Raises ValueError without exits or without a question that can be measured.
        """
        if len(stage_layers) < 2:
            raise ValueError("the ranker has one stage: there is no exit to drop at, and nothing to tune")
        self._layers, self.minimum, self._against = np.asarray(stage_layers), minimum, measure
        self._questions = [(question, scores) for question, scores in scored if measure.usable(question)]
        if not self._questions:
            raise ValueError(f"no dev question has {measure.needs}")
        self._whole = self._values(RatioSchedule(self.keep_all))
        self._measured: dict[Schedule, Measured] = {}

    @property
    def exits(self) -> int:
        """The number of ratios of a schedule."""
        return len(self._layers) - 1

    @property
    def keep_all(self) -> Schedule:
        """The schedule that drops nothing."""
        return (0.0,) * self.exits

    @property
    def sizes(self) -> list[int]:
        """The number of candidates of each question."""
        return [len(question.candidates) for question, _ in self._questions]

    @property
    def measured(self) -> list[Measured]:
        """All measurements so far, in the order in which they were made."""
        return list(self._measured.values())

    def measure(self, schedule: Schedule) -> Measured:
        """Measure cost and accuracy of one schedule, or return the earlier measurement."""
        if schedule not in self._measured:
            self._measured[schedule] = self._measure(schedule)
        return self._measured[schedule]

    def _measure(self, schedule: Schedule) -> Measured:
        policy, names = RatioSchedule(schedule, self.minimum), self._against.names
        values = self._values(policy)
        lost = 100.0 * (self._whole - values)[:, 0]
        return Measured(
            schedule=schedule,
            cost=relative_cost(self._layers.tolist(), schedule),
            dev_cost=cost_of(self.sizes, self._layers.tolist(), policy),
            metrics=dict(zip(names, (100.0 * values.mean(axis=0)).tolist(), strict=True)),
            metric=names[0],
            loss=float(lost.mean()),
            loss_error=float(lost.std(ddof=1) / np.sqrt(len(lost))) if len(lost) > 1 else None,
        )

    def _values(self, policy: DropPolicy) -> NDArray[np.float64]:
        """Metrics [questions, names] in 0..1."""
        rows = [
            self._against.values(question, scores, apply_policy(scores, policy)) for question, scores in self._questions
        ]
        return np.asarray(rows)


def search_grid(dev: DevSet, ratios: Sequence[float] = GRID) -> None:
    """Measure every schedule with these ratios, as the paper does: `len(ratios) ** exits` of them."""
    schedules = list(product(ratios, repeat=dev.exits))
    for schedule in progress(schedules, unit="schedule", desc="grid"):
        dev.measure(schedule)


def search_optuna(dev: DevSet, bounds: TuningBounds, *, trials: int, seed: int) -> None:
    """Measure up to `trials` schedules in steps of STEP, proposed by TPE, beginning with the best so far."""
    optuna.logging.disable_default_handler()
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    names = [f"alpha {index}" for index in range(1, dev.exits + 1)]
    if dev.measured:
        best = max(dev.measured, key=bounds.order).schedule
        study.enqueue_trial(dict(zip(names, best, strict=True)))

    def value(trial: optuna.Trial) -> float:
        drawn = tuple(round(trial.suggest_float(name, 0.0, MOST, step=STEP), 2) for name in names)
        return bounds.value(dev.measure(drawn))

    study.optimize(value, n_trials=trials)


def choose(measured: Sequence[Measured], bounds: TuningBounds) -> Measured:
    """The best schedule within the bounds. Raises ValueError when no schedule is within them."""
    best = max(measured, key=bounds.order)
    if bounds.excess(best) > 0:
        nearest = policy_name(RatioSchedule(best.schedule))
        raise ValueError(
            f"none of {len(measured)} schedules holds the bounds; the nearest, {nearest}, "
            f"loses {best.loss:.2f} points of {TITLES.get(best.metric, best.metric)} at a cost of {best.cost:.2f}"
        )
    return best


def frontier(measured: Sequence[Measured]) -> list[Measured]:
    """The schedules for which no cheaper one is as accurate or more, the costliest and most accurate first."""
    front: list[Measured] = []
    for point in sorted(measured, key=lambda point: (point.cost, -point.metrics[point.metric])):
        if not front or point.metrics[point.metric] > front[-1].metrics[point.metric]:
            front.append(point)
    return front[::-1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """The results of the searches."""

    default: Measured
    frontier: list[Measured]
    tried: list[Measured]

    @property
    def menu(self) -> tuple[TunedSchedule, ...]:
        """A few schedules for a service to choose among: the best within each of BUDGETS, and the default."""
        within = [next((point for point in self.frontier if point.cost <= budget), self.default) for budget in BUDGETS]
        points = {point.schedule: point for point in (*within, self.default)}
        return tuple(point.tuned() for point in sorted(points.values(), key=lambda point: -point.cost))


def tune(dev: DevSet, bounds: TuningBounds, *, ratios: Sequence[float] = GRID, trials: int, seed: int) -> Tuning:
    """Search the grid, then with Optuna, and choose. Raises ValueError when no schedule is within the bounds."""
    dev.measure(dev.keep_all)
    search_grid(dev, ratios)
    search_optuna(dev, bounds, trials=trials, seed=seed)
    return Tuning(default=choose(dev.measured, bounds), frontier=frontier(dev.measured), tried=dev.measured)
