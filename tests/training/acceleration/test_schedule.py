"""A schedule is measured against the model's own ranking, whatever the labels say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cerberank_models.drop import RatioSchedule
from cerberank_models.encoding import Candidate
from cerberank_training.acceleration.schedule import (
    AgainstOwnRanking,
    FormAgreement,
    agreement_with,
    check_drops,
    same_first_share,
    within_gate,
)
from cerberank_training.data import LabelledCandidate, Question
from cerberank_training.evaluation.dev_sets import DevSets
from cerberank_training.evaluation.gate import GateError
from cerberank_training.evaluation.schedule_search import TuningBounds, tune
from cerberank_training.evaluation.variants import AllScores, apply_policy

distinct = st.integers(1, 12).flatmap(
    lambda n: arrays(np.float64, n, elements=st.integers(0, 99).map(float), unique=True)
)


@given(own=distinct, data=st.data())
def test_the_figures_are_those_of_the_survivors(own: np.ndarray, data: st.DataObject) -> None:
    """The own first is first exactly where it survived, and the overlap counts the survivors of the first five."""
    exit_ = data.draw(arrays(np.float64, len(own), elements=st.integers(0, 99).map(float), unique=True))
    policy = RatioSchedule((0.5,))
    top1, overlap = agreement_with(own, apply_policy(AllScores((exit_, own), None), policy))
    best, alive = np.argsort(-own)[:5], set(policy.survivors(0, exit_).tolist())
    assert top1 == float(int(best[0]) in alive)
    kept = sum(int(row) in alive for row in best)
    # Dropped candidates fill the places behind the survivors, perhaps with one of the own five.
    assert kept / len(best) <= overlap <= 1.0
    if len(alive) >= 5:
        assert overlap == kept / len(best)


def question(labels: list[int]) -> Question:
    return Question(
        id="q", text="q", candidates=tuple(LabelledCandidate(Candidate(text=str(i)), v) for i, v in enumerate(labels))
    )


def test_labels_change_nothing_and_single_candidates_do_not_count() -> None:
    """An exit that drops the own first costs all of top-1 agreement; the mean of both figures is what decides."""
    rng = np.random.default_rng(0)
    own = rng.normal(0, 1, 20)
    blind = own.copy()
    blind[own.argmax()] = -9.0
    for labels in ([0] * 20, [1] * 20):
        rows = [(question(labels), AllScores((blind, own), None)), (question([1]), AllScores((own[:1], own[:1]), None))]
        dev = DevSets((2.0, 2.0), {"dev": rows}, reference=AgainstOwnRanking())
        point = dev.measure(RatioSchedule((0.5,)))
        assert dev.sizes == [20]
        assert point.metrics == pytest.approx({"agreement": 40.0, "top1_agreement": 0.0, "overlap@5": 80.0})
        assert (point.metric, point.loss) == ("agreement", pytest.approx(60.0))
        assert "map_loss" not in point.tuned().metrics
    with pytest.raises(ValueError, match="two candidates"):
        DevSets((2.0, 2.0), {"dev": rows[1:]}, reference=AgainstOwnRanking())


def test_a_default_that_drops_nothing_is_refused_with_what_else_there_is() -> None:
    """Keeping all holds each --max-loss, and a small ratio drops none of few candidates."""
    rng = np.random.default_rng(0)
    own = rng.normal(0, 1, 4)
    dev = DevSets(
        (2.0, 2.0), {"dev": [(question([0] * 4), AllScores((-own, own), None))]}, reference=AgainstOwnRanking()
    )
    schedules = [RatioSchedule((ratio,)) for ratio in (0.1, 0.5, 0.75)]
    with pytest.raises(ValueError, match="nothing would be dropped") as error:
        check_drops(tune(dev, TuningBounds(max_loss=3.0), schedules=schedules))
    assert "schedules, 0.75, loses 50.00 points of agreement at a cost of 0.62; the one" in str(error.value)
    assert all(option in str(error.value) for option in ("--max-loss", "--max-cost", "more questions"))
    check_drops(tune(dev, TuningBounds(max_cost=0.8)))
    small = DevSets(
        (2.0, 2.0),
        {"dev": [(question([0] * 4), AllScores((own, own), None))]},
        minimum=4,
        reference=AgainstOwnRanking(),
    )
    with pytest.raises(ValueError, match="lower --minimum"):
        check_drops(tune(small, TuningBounds(max_loss=3.0)))


def test_the_gate_names_form_and_figure() -> None:
    """On the bound it passes, below it does not."""
    figures = FormAgreement(questions=100, top1=95.0, overlap=90.0)
    figures.check("int8", 95.0)
    with pytest.raises(GateError, match=r"int8: .*top-1 agreement 95.0 %.*at least 95.5 %"):
        figures.check("int8", 95.5)


def test_the_gate_takes_part_in_the_choice() -> None:
    """The cheapest schedule within --max-loss loses too many first candidates; the next one that keeps them is taken.

    The exit puts the own first candidate of three questions in ten in place 6 of 10, which 0.5 drops and 0.3 keeps.
    """
    own = np.arange(10.0, 0.0, -1.0)
    late = np.array([4.5, 9.0, 8.0, 7.0, 6.0, 5.0, 3.0, 2.0, 1.0, 0.0])
    rows = [(question([0] * 10), AllScores((late if number < 3 else own, own), None)) for number in range(10)]
    dev = DevSets((2.0, 2.0), {"dev": rows}, reference=AgainstOwnRanking())
    loose, strict = (
        TuningBounds(max_loss=50.0, least={"top1_agreement": least} if least else {}) for least in (0.0, 90.0)
    )
    half, third = schedules = [RatioSchedule((0.5,)), RatioSchedule((0.3,))]
    tuning = tune(dev, loose, schedules=schedules)
    assert tuning.default.policy == half
    assert tune(dev, strict, schedules=schedules).default.policy == third
    assert same_first_share(rows, half) == 70.0
    for checked, least, policy in ((rows, 90.0, third), (rows[3:], 90.0, half), (rows, 70.0, half)):
        assert within_gate(tuning, loose, checked, least=least).default.policy == policy
    cheap = TuningBounds(max_cost=0.76)
    with pytest.raises(
        ValueError, match=r"none of 1 schedules .* 90 % of the 10 --gate-questions; the nearest, 0\.5, "
    ):
        within_gate(tuning, cheap, rows, least=90.0)
