"""Searches the drop schedule {alpha_1..alpha_m} of a cascade on dev data, which CT leaves open (section 5.5, footnote
3).

Input: the scores of all stages for every dev question, computed once. Output: the cost and the loss of each schedule,
the best schedules at every cost, and the chosen one. Two searches share their measurements: the paper's grid, and
Optuna's TPE with smaller steps.

A schedule is rejected unless the bound of its loss is low enough on every set. This is an intersection-union test: its
level is that of the bound on a single set, for any number of sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import fmean
from typing import Protocol

import numpy as np
import optuna
from numpy.typing import NDArray
from scipy import stats

from cerberank_models.config import TunedSchedule
from cerberank_models.drop import DropPolicy, RatioSchedule, cost_of, relative_cost
from cerberank_models.progress import progress
from cerberank_training.data import Question
from cerberank_training.evaluation.question_metrics import METRICS, TITLES, expected_metrics
from cerberank_training.evaluation.report import table
from cerberank_training.evaluation.variants import AllScores, Ranks, apply_policy, policy_name

GRID = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
"""The paper's ratios, and 0."""
STEP, MOST = 0.05, 0.95
"""The step and the largest value of Optuna's ratios."""
LARGEST_LOSS = 100.0
"""The largest loss that is possible, in points."""
BUDGETS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
"""The costs for which a checkpoint gets a schedule, among which a service can choose."""

FEWEST = 100
"""The least number of questions of a set for a bound of the loss.

Most questions lose nothing and a few lose much, so that small samples may miss the latter. In samples of the bundled
model's losses, bounds of 95 % held in 72 to 100 % of the samples of 30 questions, in 84 to 99 % of those of 100, and in
90 to 98 % of those of 300. Bootstrap bounds did not hold more often.
"""

Schedule = tuple[float, ...]


def ratios_text(schedule: Schedule) -> str:
    """The ratios, separated by commas."""
    return ",".join(f"{alpha:g}" for alpha in schedule)


@dataclass(frozen=True, kw_only=True, slots=True)
class SetResult:
    """A schedule's results on one set of dev questions. Value and losses are points of the deciding metric."""

    questions: int
    candidates: float
    """The mean number of candidates of a question."""
    cost: float
    """The cost for the questions' numbers of candidates, relative to no drops."""
    value: float
    loss: float
    """The loss against no drops."""
    loss_error: float | None
    """The standard error of `loss` over the questions; None for a single question."""
    bound: float | None
    """The upper bound of the loss with the given confidence; `loss` itself if no confidence was given. None for a set
    of fewer than FEWEST questions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A schedule's results on the dev questions; metrics are percentages."""

    schedule: Schedule
    cost: float
    """The cost relative to no drops, in the limit of many candidates."""
    dev_cost: float
    """The cost for the dev questions' numbers of candidates. Of few candidates, a small ratio may drop none."""
    metrics: dict[str, float]
    """The mean over sets of each set's mean."""
    metric: str = "map"
    """The name of the metric that decides."""
    loss: float
    """The loss against no drops in points of `metric`, as the mean over sets."""
    loss_error: float | None
    """The mean of the sets' standard errors. For one set it is the standard error of `loss`, and for several an upper
    bound. None if a set has a single question."""
    bound: float | None
    """The largest bound of a set. None if a set has none, or fewer than FEWEST questions have a candidate dropped."""
    dropping: int
    """The number of questions of all sets in which the schedule drops a candidate."""
    sets: Mapping[str, SetResult]

    def tuned(self) -> TunedSchedule:
        """The schedule in the form of a checkpoint's config."""
        metrics = {**self.metrics, f"{self.metric}_loss": self.loss}
        if self.loss_error is not None:
            metrics[f"{self.metric}_loss_error"] = self.loss_error
        rounded = {name: round(value, 3) for name, value in metrics.items()}
        return TunedSchedule(schedule=self.schedule, cost=self.cost, metrics=rounded)


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningBounds:
    """The largest allowed loss and cost of a schedule.

    With `max_loss` the cheapest schedule within the bounds is best, and without it the most accurate. Loss and accuracy
    are those of `Measured.metric`.
    """

    max_loss: float | None = None
    """The largest value of `Measured.bound`; a schedule without a bound exceeds it."""
    max_cost: float | None = None
    least: Mapping[str, float] = field(default_factory=dict)
    """The least values of metrics, in percent."""

    def excess(self, point: Measured) -> float:
        """The amount by which a schedule exceeds the bounds; 0 within the bounds."""
        bound = LARGEST_LOSS if point.bound is None else point.bound
        loss = 0.0 if self.max_loss is None else bound - self.max_loss
        cost = 0.0 if self.max_cost is None else point.cost - self.max_cost
        short = sum(max(0.0, least - point.metrics[name]) for name, least in self.least.items())
        return max(0.0, loss) + max(0.0, cost) + short

    def order(self, point: Measured) -> tuple[float, float, float]:
        """A sort key: better points have larger keys, and points within the bounds are better than all others."""
        accuracy = point.metrics[point.metric]
        rest = (accuracy, -point.cost) if self.max_loss is None else (-point.cost, accuracy)
        return (-self.excess(point), *rest)

    def value(self, point: Measured) -> float:
        """The leading part of the key as one number for Optuna: 0 to 1 within the bounds, negative outside."""
        if excess := self.excess(point):
            return -excess
        return point.metrics[point.metric] / 100.0 if self.max_loss is None else 1.0 - point.cost


class Reference(Protocol):
    """The reference that the ranking under a schedule is compared with."""

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics; the first one decides."""

    @property
    def needs(self) -> str:
        """The property that a measurable question has, for messages."""

    def usable(self, question: Question) -> bool:
        """True if the metrics are defined for the question."""

    def values(self, question: Question, scores: AllScores, ranks: Ranks) -> Sequence[float]:
        """The metrics (0 to 1) of a schedule's `ranks` [n]; `scores` are the candidates' scores without drops."""


@dataclass(frozen=True, slots=True)
class AgainstLabels:
    """The labels of dev data as reference; MAP decides."""

    names: tuple[str, ...] = METRICS
    needs: str = "a positive candidate"

    def usable(self, question: Question) -> bool:
        """True for a question with a positive."""
        return question.answerable

    def values(self, question: Question, scores: AllScores, ranks: Ranks) -> Sequence[float]:
        """The expected metrics over orders of ties; `scores` are not used."""
        row = expected_metrics(np.asarray(question.labels), ranks, question.missed)
        return [row[name] for name in self.names]


class DevSets:
    """Measures each schedule once, on the measurable questions of one or more sets."""

    def __init__(
        self,
        stage_layers: Sequence[float],
        scored: Mapping[str, Iterable[tuple[Question, AllScores]]],
        *,
        minimum: int = 1,
        reference: Reference = AgainstLabels(),
        confidence: float | None = None,
    ) -> None:
        """Keep the questions and scores of each set. Every schedule leaves at least `minimum` candidates alive.

        `confidence` is that of the bounds of losses; None uses the losses themselves as bounds. Raises ValueError for
        a ranker without exits, and for a set without a measurable question.
        """
        if len(stage_layers) < 2:
            raise ValueError("the ranker has one stage: there is no exit to drop at, and nothing to tune")
        self._layers = np.asarray(stage_layers)
        self.minimum = minimum
        self._reference = reference
        self.confidence = confidence
        self._sets = {
            name: [(question, scores) for question, scores in rows if reference.usable(question)]
            for name, rows in scored.items()
        }
        if not self._sets or not all(self._sets.values()):
            raise ValueError(f"no dev question has {reference.needs}")
        self._whole = {name: self._values(name, RatioSchedule(self.keep_all)) for name in self._sets}
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
        """The number of candidates of each question of all sets."""
        return [len(question.candidates) for rows in self._sets.values() for question, _ in rows]

    @property
    def measured(self) -> list[Measured]:
        """All measurements, in the order in which they were made."""
        return list(self._measured.values())

    def measure(self, schedule: Schedule) -> Measured:
        """Measure cost and accuracy of one schedule, or return the earlier measurement."""
        if schedule not in self._measured:
            self._measured[schedule] = self._measure(schedule)
        return self._measured[schedule]

    def _measure(self, schedule: Schedule) -> Measured:
        policy, names = RatioSchedule(schedule, self.minimum), self._reference.names
        values = {name: self._values(name, policy) for name in self._sets}
        sets = {name: self._result(name, values[name][:, 0], policy) for name in self._sets}
        errors = [each.loss_error for each in sets.values() if each.loss_error is not None]
        dropping = sum(policy.expected_alive(size)[-1] < size for size in self.sizes)
        means = np.mean([rows.mean(axis=0) for rows in values.values()], axis=0)
        return Measured(
            schedule=schedule,
            cost=relative_cost(self._layers.tolist(), schedule),
            dev_cost=cost_of(self.sizes, self._layers.tolist(), policy),
            metrics=dict(zip(names, (100.0 * means).tolist(), strict=True)),
            metric=names[0],
            loss=fmean(each.loss for each in sets.values()),
            loss_error=fmean(errors) if errors else None,
            bound=self._bound(sets.values(), policy, dropping),
            dropping=dropping,
            sets=sets,
        )

    def _result(self, name: str, values: NDArray[np.float64], policy: RatioSchedule) -> SetResult:
        lost = 100.0 * (self._whole[name][:, 0] - values)
        sizes = [len(question.candidates) for question, _ in self._sets[name]]
        cost = cost_of(sizes, self._layers.tolist(), policy)
        mean = float(lost.mean())
        return SetResult(
            questions=len(sizes),
            candidates=fmean(sizes),
            cost=cost,
            value=100.0 * float(values.mean()),
            loss=mean,
            loss_error=float(lost.std(ddof=1) / np.sqrt(len(lost))) if len(lost) > 1 else None,
            # Without drops nothing is lost, so that no least number of questions is needed.
            bound=mean if self.confidence is None or cost == 1.0 else upper_bound(lost, self.confidence),
        )

    def _bound(self, sets: Iterable[SetResult], policy: RatioSchedule, dropping: int) -> float | None:
        """The largest bound of the sets; None if a set has none, or the policy drops in too few questions."""
        bounds = [each.bound for each in sets]
        if self.confidence is not None and any(policy.ratios) and dropping < FEWEST:
            return None
        return None if None in bounds else max(bound for bound in bounds if bound is not None)

    def _values(self, name: str, policy: DropPolicy) -> NDArray[np.float64]:
        """The metrics [questions of the set, names], from 0 to 1."""
        rows = [
            self._reference.values(question, scores, apply_policy(scores, policy))
            for question, scores in self._sets[name]
        ]
        return np.asarray(rows)


def upper_bound(lost: NDArray[np.float64], confidence: float) -> float | None:
    """The one-sided upper bound of the mean of `lost` [questions], in points, by Student's t.

    With fewer than FEWEST questions there is none.

    >>> lost = np.tile([10.0, -10.0], 50)
    >>> upper_bound(lost, 0.5), round(upper_bound(lost, 0.95), 2), upper_bound(lost[:50], 0.95)
    (0.0, 1.67, None)
    """
    if len(lost) < FEWEST:
        return None
    error = lost.std(ddof=1) / np.sqrt(len(lost))
    return float(lost.mean() + stats.t.ppf(confidence, len(lost) - 1) * error)


def search_grid(dev: DevSets, ratios: Sequence[float] = GRID) -> None:
    """Measure all `len(ratios) ** exits` schedules with these ratios, as the paper does."""
    schedules = list(product(ratios, repeat=dev.exits))
    for schedule in progress(schedules, unit="schedule", desc="grid"):
        dev.measure(schedule)


def search_optuna(dev: DevSets, bounds: TuningBounds, *, trials: int, seed: int) -> None:
    """Measure up to `trials` schedules in steps of STEP that TPE proposes, which begins with the best so far."""
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
        least = "".join(f", with {name} {best.metrics[name]:.1f} %" for name in bounds.least)
        metric = TITLES.get(best.metric, best.metric)
        raise ValueError(
            f"none of {len(measured)} schedules holds the bounds; the nearest, {nearest}, "
            f"loses {best.loss:.2f} points of {metric} at a cost of {best.cost:.2f}{least}"
        )
    return best


def frontier(measured: Sequence[Measured], metric: str | None = None) -> list[Measured]:
    """The schedules for which no cheaper one is at least as accurate; the most expensive comes first.

    `metric` is the measure of accuracy; None is the deciding one.
    """

    def accuracy(point: Measured) -> float:
        return point.metrics[metric or point.metric]

    front: list[Measured] = []
    for point in sorted(measured, key=lambda point: (point.cost, -accuracy(point))):
        if not front or accuracy(point) > accuracy(front[-1]):
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
        """The schedules among which a service can choose: the most accurate within each of BUDGETS, and the default."""
        within = [next((point for point in self.frontier if point.cost <= budget), self.default) for budget in BUDGETS]
        points = {point.schedule: point for point in (*within, self.default)}
        return tuple(point.tuned() for point in sorted(points.values(), key=lambda point: -point.cost))


def tune(dev: DevSets, bounds: TuningBounds, *, ratios: Sequence[float] = GRID, trials: int, seed: int) -> Tuning:
    """Search the grid and then with Optuna, and choose. Raises ValueError when no schedule is within the bounds."""
    dev.measure(dev.keep_all)
    search_grid(dev, ratios)
    search_optuna(dev, bounds, trials=trials, seed=seed)
    return Tuning(default=choose(dev.measured, bounds), frontier=frontier(dev.measured), tried=dev.measured)


def schedule_table(tuning: Tuning, titles: Mapping[str, str]) -> str:
    """A Markdown table with a row for each schedule of the menu; `titles` are those of the shown metrics."""
    lost = f"{tuning.default.metric}_loss"
    title = TITLES.get(tuning.default.metric, tuning.default.metric)
    rows = [
        [
            ratios_text(row.schedule) + (" (default)" if row.schedule == tuning.default.schedule else ""),
            f"{row.cost:.2f}",
            f"{row.metrics[lost]:.2f} ± {row.metrics.get(f'{lost}_error', 0.0):.2f}",
            *(f"{row.metrics[name]:.1f}" for name in titles),
        ]
        for row in tuning.menu
    ]
    return table(["drop schedule", "cost", f"{title} loss ± error", *titles.values()], rows)
