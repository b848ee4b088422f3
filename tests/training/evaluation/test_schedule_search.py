from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_models.drop import RatioSchedule
from cerberank_models.encoding import Candidate
from cerberank_training.data import LabelledCandidate, Question
from cerberank_training.evaluation.dev_sets import FEWEST, DevSets, Measured, SetResult, upper_bound
from cerberank_training.evaluation.figures import Evaluation
from cerberank_training.evaluation.schedule_search import TuningBounds, choose, frontier, tune
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


def lexical(rows: list[tuple[Question, AllScores]], seed: int = 0) -> list[tuple[Question, AllScores]]:
    """The rows with a lexical layer that sees the labels of some questions, and gives nothing to the others."""
    rng = np.random.default_rng(seed)
    return [
        (question, replace(scores, lexical=np.asarray(question.labels) * rng.integers(0, 2) + 0.0))
        for question, scores in rows
    ]


def measured(cost: float = 0.5, loss: float = 0.0, **more: object) -> Measured:
    fields = {
        "policy": RatioSchedule((round(1 - cost, 2),)),
        "cost": cost,
        "metrics": {"map": 90.0 - loss},
        "loss": loss,
        "loss_error": 0.0,
        "bound": loss,
        "dropping": 999,
        "sets": {},
    }
    return Measured(**(fields | more))  # type: ignore[arg-type]


def test_a_measurement_is_what_evaluate_reports() -> None:
    """Metrics and loss equal Evaluation's figures; the cost counts layers that really run."""
    rows, policy = lexical(scored(candidates=5)), RatioSchedule((0.3, 0.5), lexical=0.4)
    rows.append((Question(id="none", text="q", candidates=(LabelledCandidate(Candidate(text="a"), 0),)), rows[0][1]))
    evaluation = Evaluation()
    for question, scores in rows:
        if any(question.labels):
            policies = {"all": RatioSchedule((0.0, 0.0)), "drop": policy}
            evaluation.add(question, {name: apply_policy(scores, policy) for name, policy in policies.items()})
    figures, point = evaluation.figures(), DevSets(LAYERS, {"dev": rows}).measure(policy)
    assert point.metrics == pytest.approx({name: figures["drop"].mean[name] for name in point.metrics})
    assert point.loss == pytest.approx(figures["all"].mean["map"] - figures["drop"].mean["map"])
    # Of 5 candidates the lexical layer drops 2, unless they tie with the third; then 1 of 3 or 5, and 1 or 2 are left.
    dropped = sum(len(scores.entering(policy)) == 3 for _, scores in rows[:-1])
    few, all_ = (3 * 2 + 2 * 2 + 1 * 1.5) / (5 * 5.5), (5 * 2 + 4 * 2 + 2 * 1.5) / (5 * 5.5)
    assert 0 < dropped < 30
    ties = sum(len(scores.entering(policy)) == 4 for _, scores in rows[:-1])
    four = (4 * 2 + 3 * 2 + 2 * 1.5) / (5 * 5.5)
    assert point.cost == pytest.approx((dropped * few + ties * four + (30 - dropped - ties) * all_) / 30)


def test_a_minimum_is_never_dropped() -> None:
    """Questions with at most the minimum of candidates lose nothing at full cost; larger ones keep the minimum."""
    policy = RatioSchedule((0.5, 0.5), minimum=5)
    few, more = (DevSets(LAYERS, {"dev": scored(candidates=n)}, minimum=5).measure(policy) for n in (5, 8))
    assert (few.loss, few.cost) == (0.0, 1.0)
    assert more.cost == pytest.approx((8 * 2 + 5 * 2 + 5 * 1.5) / (8 * 5.5))


def test_the_bound_is_of_the_mean_over_sets() -> None:
    """Its error is that of independent means, so that four equal sets have half the error of one."""
    policy = RatioSchedule((0.5, 0.5))
    sets = {str(seed): scored(120, seed=seed) for seed in range(4)}
    alone = [DevSets(LAYERS, {name: rows}, confidence=0.95).measure(policy) for name, rows in sets.items()]
    point = DevSets(LAYERS, sets, confidence=0.95).measure(policy)
    assert point.questions == 480
    assert point.loss == pytest.approx(np.mean([each.loss for each in alone]))
    error = sum(each.loss_error**2 for each in alone) ** 0.5 / 4
    assert point.loss_error == pytest.approx(error)
    assert point.bound == pytest.approx(upper_bound(point.loss, error, 476, 0.95))
    assert point.loss + 1.64 * error < (point.bound or 0.0) < point.loss + 1.66 * error


def test_a_set_cannot_pay_for_another() -> None:
    """A schedule within the bound of the mean is refused for one set's loss, and for its P@1."""
    harmless = SetResult(
        questions=200,
        candidates=9.0,
        cost=0.5,
        value=80.0,
        loss=-1.0,
        loss_error=0.1,
        first_loss=0.0,
        first_lower=False,
    )
    bounds = TuningBounds(max_loss=0.3, max_set_loss=0.8)
    assert choose([measured(sets={"a": harmless})], bounds)
    for other in (replace(harmless, loss=0.9), replace(harmless, first_loss=1.0, first_lower=True)):
        with pytest.raises(ValueError, match="holds the bounds"):
            choose([measured(sets={"a": harmless, "b": other})], bounds)


def test_a_significantly_lower_p_at_1_is_marked() -> None:
    """An exit that drops the only positive of every second question; one that drops it in one question of 200."""
    labels = (1, 0, 0, 0)
    question = Question(
        id="q", text="q", candidates=tuple(LabelledCandidate(Candidate(text=str(k)), v) for k, v in enumerate(labels))
    )
    right, wrong = np.array([3.0, 2, 1, 0]), np.array([0.0, 1, 2, 3])
    for period, lower in ((2, True), (200, False)):
        rows = [(question, AllScores((wrong if not k % period else right, right), None)) for k in range(200)]
        row = DevSets((1.0, 1.0), {"dev": rows}, confidence=0.95).measure(RatioSchedule((0.5,))).sets["dev"]
        assert (row.first_lower, row.first_loss) == (lower, pytest.approx(100 / period))


@pytest.mark.parametrize("rows", [scored(FEWEST - 1), scored(FEWEST, candidates=5)])
def test_too_few_questions_prove_nothing(rows: list[tuple[Question, AllScores]]) -> None:
    """Neither few questions, nor many in which the minimum leaves nothing to drop: all candidates stay."""
    dev = DevSets(LAYERS, {"dev": rows}, minimum=5, confidence=0.95)
    tuning = tune(dev, TuningBounds(max_loss=50.0))
    assert tuning.default.policy == dev.keep_all
    assert {point.bound for point in tuning.tried} <= {0.0, None}
    assert {point.dropping for point in tuning.tried} == ({0, FEWEST - 1} if len(rows) < FEWEST else {0})


points = st.lists(
    st.builds(measured, st.sampled_from([0.4, 0.5, 0.6, 0.8, 1.0]), st.sampled_from([-0.5, 0.0, 0.5, 1.0, 3.0])),
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


@given(measured=points)
def test_the_frontier_is_what_nothing_dominates(measured: list[Measured]) -> None:
    """Every schedule is dominated by one on the frontier; there, cheaper means less accurate."""
    front = frontier(measured)
    assert all(any(p.cost <= q.cost and p.loss <= q.loss for p in front) for q in measured)
    assert all(a.cost > b.cost and a.loss < b.loss for a, b in pairwise(front))


def test_every_metric_has_a_frontier() -> None:
    """A schedule that is better by P@1 and worse by MAP is on the frontier of P@1 alone; the other, on that of MAP."""
    rows = ((1.0, 70.0, 50.0), (0.6, 69.0, 49.0), (0.5, 60.0, 49.5))
    points = [measured(cost, 70.0 - value, metrics={"map": value, "p@1": first}) for cost, value, first in rows]
    assert [point.cost for point in frontier(points)] == [1.0, 0.6, 0.5]
    assert [point.cost for point in frontier(points, "p@1")] == [1.0, 0.5]


def test_the_search_finds_what_a_full_grid_finds() -> None:
    """The share of the lexical layer is among those that are searched."""
    rows, bounds = lexical(scored()), TuningBounds(max_loss=2.0)
    dev, grid = DevSets(LAYERS, {"dev": rows}), DevSets(LAYERS, {"dev": rows})
    shares = [share / 5 for share in range(5)]
    schedules = [RatioSchedule((a, b), lexical=c) for a in shares for b in shares for c in shares]
    best, all_ = tune(dev, bounds), tune(grid, bounds, schedules=schedules)
    assert best.default.policy.lexical > 0
    assert best.default.cost <= all_.default.cost + 0.02
    cheap = TuningBounds(max_cost=0.6)
    assert tune(dev, cheap).default.loss <= tune(grid, cheap, schedules=schedules).default.loss + 0.5


def test_the_search_may_leave_the_lexical_layer_out() -> None:
    """No schedule that is tried has a share of it, although one would pay."""
    tuning = tune(DevSets(LAYERS, {"dev": lexical(scored())}, lexical=False), TuningBounds(max_loss=2.0))
    assert {point.policy.lexical for point in tuning.tried} == {0.0}
    assert tuning.default.dropping


def test_a_ranker_of_one_stage_drops_by_the_lexical_layer_alone() -> None:
    """As an opaque import."""
    rows = [(question, AllScores(scores.stages[-1:], None, scores.lexical)) for question, scores in lexical(scored())]
    best = tune(DevSets((6.0,), {"dev": rows}), TuningBounds(max_loss=5.0)).default
    assert best.policy.ratios == ()
    assert best.policy.lexical > 0 < 1 - best.cost


def test_what_holds_for_fewer_candidates_holds_for_more() -> None:
    """Without a bound of its own, unless it loses more than the limits."""
    few = scored(FEWEST - 1, candidates=30, seed=3)
    bounds, known = TuningBounds(max_loss=5.0), RatioSchedule((0.3, 0.0))
    dev = DevSets(LAYERS, {"dev": few}, confidence=0.95)
    assert tune(dev, bounds).default.policy == dev.keep_all
    assert tune(dev, bounds, fewer=known).default.policy == known
    assert dev.measure(known).bound is None
    assert tune(dev, bounds, fewer=RatioSchedule((0.9, 0.9))).default.policy == dev.keep_all


def test_the_menu_goes_from_accurate_to_cheap_and_holds_the_default() -> None:
    """As the checkpoint's config demands; every entry was measured, and is the best for its cost, or asked for."""
    dev = DevSets(LAYERS, {"dev": lexical(scored())})
    tuning = tune(dev, TuningBounds(max_loss=2.0))
    bad = RatioSchedule((0.9, 0.0))
    assert bad.ratios in {entry.schedule for entry in replace(tuning, also=(dev.measure(bad),)).menu}
    policies = [RatioSchedule(entry.schedule, lexical=entry.lexical_ratio) for entry in tuning.menu]
    costs = [entry.cost for entry in tuning.menu]
    assert tuning.default.policy in policies
    assert costs == sorted(costs, reverse=True)
    assert len(set(policies)) == len(policies) > 2
    by_policy = {point.policy: point for point in tuning.tried}
    for policy, entry in zip(policies, tuning.menu, strict=True):
        rivals = [point.metrics["map"] for point in tuning.tried if point.cost <= entry.cost]
        assert policy == tuning.default.policy or by_policy[policy].metrics["map"] == max(rivals)


@pytest.mark.parametrize(
    ("layers", "rows", "message"),
    [((6.0,), scored(1), "one stage"), (LAYERS, [], "no dev question")],
)
def test_what_cannot_be_tuned_is_refused(
    layers: tuple[float, ...], rows: list[tuple[Question, AllScores]], message: str
) -> None:
    """A ranker that can drop nothing, and data without a positive, are refused."""
    with pytest.raises(ValueError, match=message):
        DevSets(layers, {"dev": rows})
