from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from cerberank_models.drop import RatioSchedule, relative_cost
from cerberank_models.encoding import Candidate
from cerberank_training.data import LabelledCandidate, Question
from cerberank_training.evaluation.figures import Evaluation
from cerberank_training.evaluation.schedule_search import (
    FEWEST,
    DevSets,
    Measured,
    TuningBounds,
    choose,
    frontier,
    search_grid,
    search_optuna,
    tune,
    upper_bound,
)
from cerberank_training.evaluation.variants import AllScores, apply_policy

LAYERS = (2.0, 2.0, 1.5)


def scored(questions: int = 30, candidates: int = 12, seed: int = 0) -> list[tuple[Question, AllScores]]:
    """Stages that see the labels through less and less noise."""
    rng = np.random.default_rng(seed)
    rows = []
    for index in range(questions):
        labels = np.concatenate([[1], rng.integers(0, 2, candidates - 1) * rng.integers(0, 2, candidates - 1)])
        rows.append(
            (
                Question(
                    id=str(index),
                    text="q",
                    candidates=tuple(LabelledCandidate(Candidate(text=str(k)), int(v)) for k, v in enumerate(labels)),
                ),
                AllScores(tuple(labels + rng.normal(0, noise, candidates) for noise in (0.6, 0.4, 0.2)), None),
            )
        )
    return rows


def test_a_measurement_is_what_evaluate_reports() -> None:
    """Metrics and loss equal Evaluation's figures; cost is the limit, dev cost counts layers that really run."""
    rows, schedule = scored(candidates=5), (0.3, 0.5)
    rows.append((Question(id="none", text="q", candidates=(LabelledCandidate(Candidate(text="a"), 0),)), rows[0][1]))
    evaluation = Evaluation()
    for question, scores in rows:
        if any(question.labels):
            policies = {"all": RatioSchedule((0.0, 0.0)), "drop": RatioSchedule(schedule)}
            evaluation.add(question, {name: apply_policy(scores, policy) for name, policy in policies.items()})
    figures, point = evaluation.figures(), DevSets(LAYERS, {"dev": rows}).measure(schedule)
    assert point.metrics == pytest.approx(figures["drop"].mean)
    assert point.loss == pytest.approx(figures["all"].mean["map"] - figures["drop"].mean["map"])
    assert point.cost == pytest.approx(relative_cost(LAYERS, schedule))
    # Of 5 candidates 1.5 -> 1 go, of the 4 left 2.
    assert point.dev_cost == pytest.approx((5 * 2 + 4 * 2 + 2 * 1.5) / (5 * 5.5))


def test_a_minimum_is_never_dropped() -> None:
    """Questions with at most the minimum of candidates lose nothing at full cost; larger ones keep the minimum."""
    few, more = (DevSets(LAYERS, {"dev": scored(candidates=n)}, minimum=5).measure((0.5, 0.5)) for n in (5, 8))
    assert (few.loss, few.dev_cost) == (0.0, 1.0)
    assert more.dev_cost == pytest.approx((8 * 2 + 5 * 2 + 5 * 1.5) / (8 * 5.5))


@given(
    lost=arrays(np.float64, st.integers(FEWEST, 300), elements=st.floats(-100.0, 100.0)),
    max_loss=st.floats(0.0, 5.0),
)
def test_a_mean_loss_of_nothing_is_no_proof_where_questions_differ(lost: NDArray[np.float64], max_loss: float) -> None:
    """The bound is above the mean by 1.64 standard errors and more, so that a wide interval is refused."""
    lost = lost - lost.mean()
    error = float(lost.std(ddof=1)) / len(lost) ** 0.5
    bound = upper_bound(lost, 0.95)
    assert bound is not None
    assert 1.64 * error - 1e-9 <= bound <= 1.71 * error + 1e-9
    point = Measured(
        schedule=(0.5,),
        cost=0.5,
        dev_cost=0.5,
        metrics={"map": 80.0},
        loss=0.0,
        loss_error=error,
        bound=bound,
        dropping=9,
        sets={},
    )
    if error > max_loss:
        with pytest.raises(ValueError, match="holds the bounds"):
            choose([point], TuningBounds(max_loss=max_loss))


def test_every_set_must_hold_the_loss() -> None:
    """A set on which much is lost refuses what another alone would accept; the figures are means over the sets."""
    easy = [(question, AllScores((scores.stages[-1],) * 3, None)) for question, scores in scored(120)]
    hard, bounds = scored(120, seed=1), TuningBounds(max_loss=1.0)
    alone = tune(
        DevSets(LAYERS, {"easy": easy}, confidence=0.95), bounds, ratios=(0.0, 0.3, 0.6), trials=0, seed=0
    ).default
    both = tune(
        DevSets(LAYERS, {"easy": easy, "hard": hard}, confidence=0.95), bounds, ratios=(0.0, 0.3, 0.6), trials=0, seed=0
    )
    assert alone.cost < both.default.cost
    assert all(each.bound is not None and each.bound <= 1.0 for each in both.default.sets.values())
    again = next(point for point in both.tried if point.schedule == alone.schedule)
    easy_bound, hard_bound = again.sets["easy"].bound, again.sets["hard"].bound
    assert easy_bound is not None
    assert hard_bound is not None
    assert easy_bound <= 1.0 < hard_bound == again.bound
    assert again.loss == pytest.approx((again.sets["easy"].loss + again.sets["hard"].loss) / 2)


@pytest.mark.parametrize("rows", [scored(FEWEST - 1), scored(FEWEST, candidates=5)])
def test_too_few_questions_prove_nothing(rows: list[tuple[Question, AllScores]]) -> None:
    """Neither a small set, nor a large one in which the minimum leaves nothing to drop: all candidates stay."""
    dev = DevSets(LAYERS, {"dev": rows}, minimum=5, confidence=0.95)
    tuning = tune(dev, TuningBounds(max_loss=50.0), ratios=(0.0, 0.5), trials=5, seed=0)
    assert tuning.default.schedule == dev.keep_all
    assert {point.bound for point in tuning.tried} == {0.0, None}
    assert {point.dropping for point in tuning.tried} == {0, FEWEST - 1 if len(rows) < FEWEST else 0}


points = st.lists(
    st.builds(
        lambda cost, loss: Measured(
            schedule=(),
            cost=cost,
            dev_cost=cost,
            metrics={"map": 90.0 - loss},
            loss=loss,
            loss_error=None,
            bound=loss,
            dropping=9,
            sets={},
        ),
        st.sampled_from([0.4, 0.5, 0.6, 0.8, 1.0]),
        st.sampled_from([-0.5, 0.0, 0.5, 1.0, 3.0]),
    ),
    min_size=1,
    max_size=12,
)
limits = st.none() | st.sampled_from([0.45, 0.6, 0.9])


@given(measured=points, max_loss=st.none() | st.sampled_from([0.0, 0.7, 2.0]), max_cost=limits)
def test_the_choice_is_the_best_within_the_bounds(
    measured: list[Measured], max_loss: float | None, max_cost: float | None
) -> None:
    """With a loss bound the cheapest, else the most accurate; an error when no schedule is within the bounds."""
    bounds = TuningBounds(max_loss=max_loss, max_cost=max_cost)
    within = [
        point
        for point in measured
        if (max_loss is None or point.loss <= max_loss) and (max_cost is None or point.cost <= max_cost)
    ]
    if not within:
        with pytest.raises(ValueError, match="holds the bounds"):
            choose(measured, bounds)
        return
    chosen = choose(measured, bounds)
    assert chosen in within
    if max_loss is None:
        assert chosen.loss == min(point.loss for point in within)
    else:
        assert chosen.cost == min(point.cost for point in within)
    # As Optuna sees it: the chosen one's value is the largest.
    assert bounds.value(chosen) == max(bounds.value(point) for point in measured)


@given(measured=points)
def test_the_frontier_is_what_nothing_dominates(measured: list[Measured]) -> None:
    """Every schedule is dominated by one on the frontier; there, cheaper means less accurate."""
    front = frontier(measured)
    assert all(any(p.cost <= q.cost and p.loss <= q.loss for p in front) for q in measured)
    assert all(a.cost > b.cost and a.loss < b.loss for a, b in pairwise(front))


def test_every_metric_has_a_frontier() -> None:
    """A schedule that is better by P@1 and worse by MAP is on the frontier of P@1 alone; the other, on that of MAP."""
    rows = ((1.0, 70.0, 50.0), (0.6, 69.0, 49.0), (0.5, 60.0, 49.5))
    measured = [
        Measured(
            schedule=(1 - cost,),
            cost=cost,
            dev_cost=cost,
            metrics={"map": value, "p@1": first},
            loss=70.0 - value,
            loss_error=None,
            bound=70.0 - value,
            dropping=9,
            sets={},
        )
        for cost, value, first in rows
    ]
    assert [point.cost for point in frontier(measured)] == [1.0, 0.6, 0.5]
    assert [point.cost for point in frontier(measured, "p@1")] == [1.0, 0.5]


def test_the_grid_is_the_papers() -> None:
    """Every combination of the ratios, once."""
    dev = DevSets(LAYERS, {"dev": scored(5)})
    search_grid(dev, (0.0, 0.3, 0.6))
    assert {point.schedule for point in dev.measured} == set(product((0.0, 0.3, 0.6), repeat=2))
    assert len(dev.measured) == 9


def test_optuna_finds_between_the_grids_ratios_what_the_grid_cannot() -> None:
    """At a cost of at most .6, with the grid's ratios 0 and .6 far apart; twice the same from the same seed."""
    bounds, rows = TuningBounds(max_cost=0.6), scored(60)
    dev, again = DevSets(LAYERS, {"dev": rows}), DevSets(LAYERS, {"dev": rows})
    search_grid(dev, (0.0, 0.6))
    coarse = choose(dev.measured, bounds)
    for each in (dev, again):
        search_grid(each, (0.0, 0.6))
        search_optuna(each, bounds, trials=60, seed=1)
    best = choose(dev.measured, bounds)
    assert best.cost <= 0.6
    assert best.metrics["map"] > coarse.metrics["map"]
    assert again.measured == dev.measured


def test_the_menu_goes_from_accurate_to_cheap_and_holds_the_default() -> None:
    """As the checkpoint's config demands; every entry was measured, and is the best for its cost."""
    tuning = tune(
        DevSets(LAYERS, {"dev": scored()}), TuningBounds(max_loss=2.0), ratios=(0.0, 0.2, 0.4, 0.6), trials=20, seed=0
    )
    schedules = [entry.schedule for entry in tuning.menu]
    costs = [entry.cost for entry in tuning.menu]
    assert tuning.default.schedule in schedules
    assert costs == sorted(costs, reverse=True)
    assert len(set(schedules)) == len(schedules) > 2
    by_schedule = {point.schedule: point for point in tuning.tried}
    for entry in tuning.menu:
        rivals = [point.metrics["map"] for point in tuning.tried if point.cost <= entry.cost]
        assert by_schedule[entry.schedule].metrics["map"] == max(rivals)


@pytest.mark.parametrize(
    ("layers", "rows", "message"),
    [((6.0,), scored(1), "one stage"), (LAYERS, [], "no dev question")],
)
def test_what_cannot_be_tuned_is_refused(
    layers: tuple[float, ...], rows: list[tuple[Question, AllScores]], message: str
) -> None:
    """A ranker without exits and data without a positive are refused."""
    with pytest.raises(ValueError, match=message):
        DevSets(layers, {"dev": rows})
