"""Costs and losses of drop schedules on dev data, from the scores of all stages for every question, computed once.

The sets are strata of one sample: the losses of each question are paired with those without drops, and the variances of
the sets' means are added, which gives the bound of the mean loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from cerberank_models.config import TunedSchedule
from cerberank_models.drop import RatioSchedule
from cerberank_training.data import Question
from cerberank_training.evaluation.question_metrics import expected_metrics
from cerberank_training.evaluation.variants import AllScores, Ranks, apply_policy

FEWEST = 100
"""The least number of questions, of all sets together, for a bound of the loss.

Most questions lose nothing and a few lose much, so that small samples may miss the latter. In samples of the bundled
model's losses, bounds of 95 % held in 72 to 100 % of the samples of 30 questions, in 84 to 99 % of those of 100, and in
90 to 98 % of those of 300. Bootstrap bounds did not hold more often.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SetResult:
    """A schedule's results on one set of dev questions. Value and losses are points of the deciding metric."""

    questions: int
    candidates: float
    """The mean number of candidates of a question."""
    cost: float
    """The layers run on the questions' candidates, relative to no drops."""
    value: float
    loss: float
    """The loss against no drops."""
    loss_error: float
    """The standard error of `loss` over the questions; 0 for a single question."""
    first_loss: float | None
    """The loss of P@1, in points; None if P@1 is not among the metrics."""
    first_lower: bool
    """True if P@1 is significantly lower than without drops, by a one-sided t test at the level of the bounds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A schedule's results on the dev questions; metrics are percentages, means over sets of each set's mean."""

    policy: RatioSchedule
    cost: float
    """The layers run on the dev questions' candidates, relative to no drops: the mean over sets. It counts what is
    really dropped: of few candidates a small ratio drops none, and the lexical layer keeps ties."""
    metrics: dict[str, float]
    metric: str = "map"
    """The name of the metric that decides."""
    loss: float
    """The loss against no drops in points of `metric`."""
    loss_error: float
    """The standard error of `loss`, with the sets as strata."""
    bound: float | None
    """The upper bound of `loss` with the given confidence; `loss` itself if no confidence was given. None if fewer than
    FEWEST questions have a candidate dropped."""
    dropping: int
    """The number of questions of all sets in which the schedule drops a candidate."""
    sets: Mapping[str, SetResult]

    @property
    def questions(self) -> int:
        """The number of questions of all sets."""
        return sum(each.questions for each in self.sets.values())

    def tuned(self) -> TunedSchedule:
        """The schedule in the form of a checkpoint's config."""
        loss = {f"{self.metric}_loss": self.loss, f"{self.metric}_loss_error": self.loss_error}
        rounded = {name: round(value, 3) for name, value in (self.metrics | loss).items()}
        return TunedSchedule(
            schedule=self.policy.ratios, lexical_ratio=self.policy.lexical, cost=self.cost, metrics=rounded
        )


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

    names: tuple[str, ...] = ("map", "mrr", "p@1", "ndcg@10")
    needs: str = "a positive candidate"

    def usable(self, question: Question) -> bool:
        """True for a question with a positive."""
        return question.answerable

    def values(self, question: Question, scores: AllScores, ranks: Ranks) -> Sequence[float]:
        """The expected metrics over orders of ties; `scores` are not used."""
        row = expected_metrics(np.asarray(question.labels), ranks, question.missed, self.names)
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
        lexical: bool = True,
    ) -> None:
        """Keep the questions and scores of each set. Every schedule leaves at least `minimum` candidates alive.

        Without `lexical`, schedules have no share of the lexical layer.
        `confidence` is that of the bounds of losses; None uses the losses themselves as bounds. Raises ValueError for a
        ranker that can drop nothing, and for a set without a measurable question.
        """
        self._layers = np.asarray(stage_layers, dtype=np.float64)
        self._reference = reference
        self.confidence = confidence
        self._sets = {
            name: [(question, scores) for question, scores in rows if reference.usable(question)]
            for name, rows in scored.items()
        }
        if not self._sets or not all(self._sets.values()):
            raise ValueError(f"no dev question has {reference.needs}")
        self.lexical = lexical and all(scores.lexical is not None for rows in self._sets.values() for _, scores in rows)
        if len(self._layers) < 2 and not self.lexical:
            raise ValueError("the ranker has one stage: there is no exit to drop at, and nothing to tune")
        self.keep_all = RatioSchedule((0.0,) * (len(self._layers) - 1), minimum)
        self._whole = {name: self._values(name, self.keep_all) for name in self._sets}
        self._measured: dict[RatioSchedule, Measured] = {}

    @property
    def sizes(self) -> list[int]:
        """The number of candidates of each question of all sets."""
        return [len(question.candidates) for rows in self._sets.values() for question, _ in rows]

    @property
    def measured(self) -> list[Measured]:
        """All measurements, in the order in which they were made."""
        return list(self._measured.values())

    def measure(self, policy: RatioSchedule) -> Measured:
        """Measure cost and accuracy of one schedule, or return the earlier measurement."""
        if policy not in self._measured:
            self._measured[policy] = self._measure(policy)
        return self._measured[policy]

    def cost(self, policy: RatioSchedule) -> float:
        """The cost of a schedule, without the measurement of its accuracy."""
        return fmean(float(self._costs(name, policy).mean()) for name in self._sets)

    def _costs(self, name: str, policy: RatioSchedule) -> NDArray[np.float64]:
        """The layers run on the candidates of each question of a set, relative to no drops."""
        exits, costs = policy.without_lexical(), []
        for _, scores in self._sets[name]:
            alive = exits.expected_alive(len(scores.entering(policy)))
            costs.append(np.dot(alive, self._layers) / (len(scores.stages[0]) * self._layers.sum()))
        return np.asarray(costs)

    def _values(self, name: str, policy: RatioSchedule) -> NDArray[np.float64]:
        """The metrics [questions of the set, names], from 0 to 1."""
        rows = [
            self._reference.values(question, scores, apply_policy(scores, policy))
            for question, scores in self._sets[name]
        ]
        return np.asarray(rows)

    def _measure(self, policy: RatioSchedule) -> Measured:
        names = self._reference.names
        values = {name: self._values(name, policy) for name in self._sets}
        costs = {name: self._costs(name, policy) for name in self._sets}
        sets = {name: self._result(name, values[name], costs[name]) for name in self._sets}
        dropping = sum(int((each < 1.0).sum()) for each in costs.values())
        means = np.mean([rows.mean(axis=0) for rows in values.values()], axis=0)
        loss = fmean(each.loss for each in sets.values())
        # The variance of the mean of independent means.
        error = float(np.sqrt(sum(each.loss_error**2 for each in sets.values()))) / len(sets)
        bound: float | None = loss
        if self.confidence is not None and dropping:
            bound = upper_bound(loss, error, len(self.sizes) - len(sets), self.confidence)
        return Measured(
            policy=policy,
            cost=fmean(each.cost for each in sets.values()),
            metrics=dict(zip(names, (100.0 * means).tolist(), strict=True)),
            metric=names[0],
            loss=loss,
            loss_error=error,
            bound=None if self.confidence is not None and 0 < dropping < FEWEST else bound,
            dropping=dropping,
            sets=sets,
        )

    def _result(self, name: str, values: NDArray[np.float64], costs: NDArray[np.float64]) -> SetResult:
        lost = 100.0 * (self._whole[name] - values)
        losses, errors = lost.mean(axis=0), np.zeros(lost.shape[1])
        if len(lost) > 1:
            errors = lost.std(axis=0, ddof=1) / np.sqrt(len(lost))
        first = self._reference.names.index("p@1") if "p@1" in self._reference.names else None
        lower = False
        if first is not None and self.confidence is not None and len(lost) > 1:
            # The bound of the gain: below 0 if P@1 is significantly lower.
            lower = upper_bound(-losses[first], errors[first], len(lost) - 1, self.confidence) < 0
        return SetResult(
            questions=len(lost),
            candidates=fmean(len(question.candidates) for question, _ in self._sets[name]),
            cost=float(costs.mean()),
            value=100.0 * float(values[:, 0].mean()),
            loss=float(losses[0]),
            loss_error=float(errors[0]),
            first_loss=None if first is None else float(losses[first]),
            first_lower=lower,
        )


def upper_bound(mean: float, error: float, freedom: int, confidence: float) -> float:
    """The one-sided upper bound of a mean with its standard error, by Student's t.

    >>> upper_bound(1.0, 0.5, 1000, 0.5), round(upper_bound(1.0, 0.5, 1000, 0.95), 2)
    (1.0, 1.82)
    """
    return float(mean + stats.t.ppf(confidence, freedom) * error)
