"""Searches the drop schedule of a cascade on dev data: the share that the lexical layer drops, and the ratios
{alpha_1..alpha_m} of the exits, which CT leaves open (section 5.5, footnote 3).

A schedule is accepted if the bound of its mean loss over the sets is low enough. A bound for each set alone would need
thousands of questions of each, and refuses cheap schedules even where nothing is lost; a looser limit of each set's own
loss, and a test of its P@1, keep a set from paying for the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

from cerberank_models.config import TunedSchedule
from cerberank_models.drop import RatioSchedule
from cerberank_models.progress import progress
from cerberank_training.evaluation.dev_sets import DevSets, Measured
from cerberank_training.evaluation.question_metrics import TITLES
from cerberank_training.evaluation.report import table

SECTION = "Drop schedules"
"""The section of a model card with the table of schedules."""
STEPS = (0.05, 0.1)
"""The changes of a share that the search tries; it begins with the larger."""
MOST = 0.95
"""The largest share."""
LARGEST_LOSS = 100.0
"""The largest loss that is possible, in points."""
FEW = 20
"""The number of schedules up to which a table shows all that were measured."""
BUDGETS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
"""The costs for which a checkpoint gets a schedule, among which a service can choose."""


def shares_text(policy: RatioSchedule) -> str:
    """The shares of a schedule without its minimum, such as `lexical 0.2, then 0.5,0.5`."""
    return str(replace(policy, minimum=1))


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningBounds:
    """The largest allowed loss and cost of a schedule.

    With `max_loss` the cheapest schedule within the bounds is best, and without it the most accurate. Loss and accuracy
    are those of `Measured.metric`.
    """

    max_loss: float | None = None
    """The largest value of `Measured.bound`; a schedule without a bound exceeds it."""
    max_set_loss: float | None = None
    """The largest loss of each set, for which P@1 must not be significantly lower either."""
    max_cost: float | None = None
    least: Mapping[str, float] = field(default_factory=dict)
    """The least values of metrics, in percent."""

    def excess(self, point: Measured) -> float:
        """The amount by which a schedule exceeds the bounds; 0 within the bounds."""
        bound = LARGEST_LOSS if point.bound is None else point.bound
        loss = 0.0 if self.max_loss is None else max(0.0, bound - self.max_loss)
        cost = 0.0 if self.max_cost is None else max(0.0, point.cost - self.max_cost)
        short = sum(max(0.0, least - point.metrics[name]) for name, least in self.least.items())
        if self.max_set_loss is not None:
            short += sum(max(0.0, each.loss - self.max_set_loss) + each.first_lower for each in point.sets.values())
        return loss + cost + short

    def order(self, point: Measured) -> tuple[float, float, float]:
        """A sort key: better points have larger keys, and points within the bounds are better than all others."""
        accuracy = point.metrics[point.metric]
        rest = (accuracy, -point.cost) if self.max_loss is None else (-point.cost, accuracy)
        return (-self.excess(point), *rest)


def search(dev: DevSets, bounds: TuningBounds) -> None:
    """Measure the schedules from no drops to the cheapest one, and then those near the best within the bounds.

    The path raises one share at a time: the one whose loss, by its bound, grows least for the cost that it saves. A
    share of the lexical layer is raised until it drops something, because ties are kept.
    """
    point = dev.measure(dev.keep_all)
    for _ in progress(range(len(_shares(dev, point.policy)) * 10), unit="step", desc="path"):
        raised = [dev.measure(policy) for policy in _raised(dev, point)]
        if not raised:
            break
        before = point
        point = min(raised, key=lambda after: (_risk(after) - _risk(before)) / (before.cost - after.cost))
    # Shares are exchanged for each other while that makes the best one better.
    best = max(dev.measured, key=bounds.order)
    while True:
        limit = best.cost if bounds.max_loss is not None else (bounds.max_cost or 1.0)
        near = [policy for policy in _near(dev, best.policy) if dev.cost(policy) <= limit]
        found = max(map(dev.measure, near), key=bounds.order, default=best)
        if bounds.order(found) <= bounds.order(best):
            return
        best = found


def _risk(point: Measured) -> float:
    return point.loss if point.bound is None else point.bound


def _shares(dev: DevSets, policy: RatioSchedule) -> tuple[float, ...]:
    """The shares that can be changed: that of the lexical layer, where there is one, and those of the exits."""
    return (policy.lexical, *policy.ratios) if dev.lexical else policy.ratios


def _changed(dev: DevSets, policy: RatioSchedule, changes: Mapping[int, float]) -> RatioSchedule | None:
    """The schedule with some of its shares changed; None if one would be out of range."""
    shares = [round(share + changes.get(index, 0.0), 2) for index, share in enumerate(_shares(dev, policy))]
    if not all(0.0 <= share <= MOST for share in shares):
        return None
    lexical = shares.pop(0) if dev.lexical else 0.0
    return replace(policy, ratios=tuple(shares), lexical=lexical)


def _raised(dev: DevSets, point: Measured) -> Iterator[RatioSchedule]:
    """The schedules with one share raised by the larger step, or by several, until the cost is lower."""
    for index in range(len(_shares(dev, point.policy))):
        for steps in range(1, 10):
            policy = _changed(dev, point.policy, {index: steps * STEPS[-1]})
            if policy is not None and dev.cost(policy) < point.cost:
                yield policy
                break


def _near(dev: DevSets, policy: RatioSchedule) -> list[RatioSchedule]:
    """The schedules with one share changed by a step, or one raised and another lowered."""
    places = range(len(_shares(dev, policy)))
    changes: list[dict[int, float]] = [{place: sign * step} for place in places for step in STEPS for sign in (1, -1)]
    changes += [{up: a, down: -b} for up, down in permutations(places, 2) for a in STEPS for b in STEPS]
    return [near for change in changes if (near := _changed(dev, policy, change)) is not None]


def choose(measured: Sequence[Measured], bounds: TuningBounds) -> Measured:
    """The best schedule within the bounds. Raises ValueError when no schedule is within them."""
    best = max(measured, key=bounds.order)
    if bounds.excess(best) > 0:
        least = "".join(f", with {name} {best.metrics[name]:.1f} %" for name in bounds.least)
        metric = TITLES.get(best.metric, best.metric)
        raise ValueError(
            f"none of {len(measured)} schedules holds the bounds; the nearest, {shares_text(best.policy)}, "
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
    """The results of a search."""

    default: Measured
    frontier: list[Measured]
    tried: list[Measured]

    also: tuple[Measured, ...] = ()
    """Further schedules of the menu, measured on the same questions."""

    @property
    def menu(self) -> tuple[TunedSchedule, ...]:
        """The schedules among which a service can choose: the most accurate within each of BUDGETS, and the default."""
        return tuple(point.tuned() for point in self._menu())

    def _menu(self) -> list[Measured]:
        within = [next((point for point in self.frontier if point.cost <= budget), self.default) for budget in BUDGETS]
        points = {point.policy: point for point in (*within, *self.also, self.default)}
        return sorted(points.values(), key=lambda point: -point.cost)

    def table(self, titles: Mapping[str, str]) -> str:
        """A Markdown table with a row for each schedule of the menu, or for each that was measured if there are few.

        `titles` are those of the shown metrics.
        """
        points = sorted(self.tried, key=lambda point: -point.cost) if len(self.tried) <= FEW else self._menu()
        title = TITLES.get(self.default.metric, self.default.metric)
        rows = [
            [
                shares_text(point.policy) + (" (default)" if point.policy == self.default.policy else ""),
                f"{point.cost:.2f}",
                str(point.questions),
                f"{point.loss:.2f} ± {point.loss_error:.2f}",
                "unknown" if point.bound is None else f"{point.bound:.2f}",
                *(f"{point.metrics[name]:.1f}" for name in titles),
            ]
            for point in points
        ]
        return table(["drop schedule", "cost", "questions", f"{title} loss ± error", "bound", *titles.values()], rows)


def tune(
    dev: DevSets,
    bounds: TuningBounds,
    *,
    schedules: Iterable[RatioSchedule] = (),
    fewer: RatioSchedule | None = None,
) -> Tuning:
    """Search a schedule, or measure only `schedules`, and choose. Raises ValueError when none is within the bounds.

    `fewer` is the schedule for fewer candidates. The same shares lose less among more, so that it needs no bound of its
    own here, where there may be few questions: it is taken if it is cheaper and its loss holds the limits of the bound.
    """
    dev.measure(dev.keep_all)
    for policy in schedules:
        dev.measure(policy)
    if len(dev.measured) == 1:
        search(dev, bounds)
    default = choose(dev.measured, bounds)
    if fewer is not None:
        known = dev.measure(fewer)
        if known.cost < default.cost and not bounds.excess(replace(known, bound=known.loss)):
            default = known
    return Tuning(default=default, frontier=frontier(dev.measured), tried=dev.measured)
