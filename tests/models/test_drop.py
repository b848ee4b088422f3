from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cerberank_models.drop import (
    UNSCORED,
    RatioSchedule,
    Survival,
    cost_of,
    drop_count,
    drop_ratios,
    order,
    relative_cost,
)
from cerberank_models.windows import Combine, Windows

hundredths = st.integers(0, 99)
scores = st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.5, 0.9]), min_size=1, max_size=30).map(np.array)


def test_the_papers_batch_shrinks_as_printed() -> None:
    """CT section 4.3: 128 candidates at alpha .3 leave 90, 63, 44, 31."""
    assert RatioSchedule((0.3,) * 4).expected_alive(128) == (128, 90, 63, 44, 31)


@given(alive=st.integers(1, 2000), percent=hundredths, minimum=st.integers(1, 50))
@example(alive=3, percent=50, minimum=1)
@example(alive=10, percent=15, minimum=1)
def test_drop_count_is_the_nearest_integer_halves_down(alive: int, percent: int, minimum: int) -> None:
    """The count equals exact fractions rounded, and never leaves fewer than the minimum."""
    exact = Fraction(percent, 100) * alive
    nearest = int(exact) + (1 if exact - int(exact) > Fraction(1, 2) else 0)
    assert drop_count(alive, percent / 100, minimum) == max(0, min(nearest, alive - minimum))


@pytest.mark.parametrize("alpha", [float("nan"), -0.1, 1.0, float("inf")])
def test_a_ratio_outside_its_range_is_refused(alpha: float) -> None:
    """Ratios outside [0, 1) are refused, and NaN too, which compares false with everything."""
    with pytest.raises(ValueError, match="drop ratio"):
        RatioSchedule((0.0, alpha))


@given(scores=scores, percent=hundredths, minimum=st.integers(1, 5))
def test_survivors_are_the_best_and_ties_keep_the_earlier(scores: np.ndarray, percent: int, minimum: int) -> None:
    """Against a sort of (score, place) pairs in plain Python."""
    keep = len(scores) - drop_count(len(scores), percent / 100, minimum)
    best = sorted(range(len(scores)), key=lambda row: (-scores[row], row))[:keep]
    assert RatioSchedule((percent / 100,), minimum).survivors(0, scores).tolist() == sorted(best)


@given(scores=scores, percent=hundredths, minimum=st.integers(1, 5))
def test_the_lexical_layer_keeps_what_ties_with_a_kept_candidate(
    scores: np.ndarray, percent: int, minimum: int
) -> None:
    """All that is dropped is worse than all that is kept, and no more is dropped than the share."""
    policy = RatioSchedule((0.5,), minimum, percent / 100)
    kept = policy.lexical_survivors(scores).tolist()
    dropped = sorted(set(range(len(scores))) - set(kept))
    least = policy.expected_alive(len(scores))[0]
    assert kept == sorted(kept)
    assert max(scores[dropped], default=-np.inf) < min(scores[kept])
    assert len(kept) >= least == len(scores) - drop_count(len(scores), percent / 100, minimum)
    assert sum(scores[row] > min(scores[kept]) for row in kept) < max(least, 1)
    assert policy.lexical_survivors(0.0 * scores).tolist() == list(range(len(scores)))
    assert policy.without_lexical().expected_alive(len(scores))[0] == len(scores)


@given(st.lists(hundredths, min_size=1, max_size=4), st.integers(1, 40), st.integers(1, 10))
def test_what_is_expected_to_be_alive_is_what_survives(percents: list[int], candidates: int, minimum: int) -> None:
    """Expected and actual survivors are equal at each stage; an exit that does not wait drops none."""
    policy = RatioSchedule(tuple(percent / 100 for percent in percents), minimum)
    alive = [candidates]
    for stage in range(len(percents)):
        alive.append(len(policy.survivors(stage, np.linspace(0.1, 0.9, alive[-1]))))
        assert policy.waits(stage) or alive[-1] == alive[-2]
    assert policy.expected_alive(candidates) == tuple(alive)


@pytest.mark.parametrize(
    ("given", "ratios"), [(None, (0.1, 0.2)), (0.3, (0.3, 0.3)), (0, (0.0, 0.0)), ([0.5, 0], (0.5, 0.0))]
)
def test_a_caller_gives_nothing_one_ratio_or_one_an_exit(
    given: float | list[float] | None, ratios: tuple[float, ...]
) -> None:
    """None gives the default, one number applies to every exit, several apply in order."""
    assert drop_ratios(given, (0.1, 0.2)) == ratios


@pytest.mark.parametrize("given", [(), (0.3,), (0.3, 0.3, 0.3)])
def test_another_number_of_ratios_is_refused(given: tuple[float, ...]) -> None:
    """The error says how many exits and stages there are."""
    with pytest.raises(ValueError, match=rf"3 stages take 2 drop ratios, not {len(given)}: .* 2 exits"):
        drop_ratios(given, (0.1, 0.2))


@given(scores=scores, data=st.data())
def test_order_puts_every_survivor_above_every_dropped_one(scores: np.ndarray, data: st.DataObject) -> None:
    """By stage, then score, then place, against plain Python."""
    stages = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(scores), max_size=len(scores))))
    expected = sorted(range(len(scores)), key=lambda row: (-stages[row], -scores[row], row))
    assert order(stages, scores).tolist() == expected


def test_the_dropped_keep_the_score_of_the_stage_that_dropped_them() -> None:
    """Four candidates, half of them dropped after each of two exits; nobody is dropped after the last stage."""
    survival = Survival(4, 3, RatioSchedule((0.5, 0.5)))
    assert survival.stages.tolist() == [UNSCORED] * 4
    assert np.isnan(survival.scores).all()
    assert survival.end(0, np.array([0.1, 0.8, 0.2, 0.9])).tolist() == [1, 3]
    assert survival.end(1, np.array([0.7, 0.3])).tolist() == [0]
    assert survival.alive.tolist() == [1]
    assert survival.end(2, np.array([0.4])).tolist() == [0]
    assert survival.stages.tolist() == [0, 2, 0, 1]
    assert survival.scores.tolist() == [0.1, 0.4, 0.2, 0.3]


@given(
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=6),
    alpha=st.sampled_from([0.0, 0.4, 0.7]),
    combine=st.sampled_from(["best", "mean"]),
    data=st.data(),
)
def test_windows_live_and_are_dropped_as_candidates(
    counts: list[int], alpha: float, combine: Combine, data: st.DataObject
) -> None:
    """After each of two exits, against lists: a candidate's score is its windows' best or mean, and it keeps all."""
    first, policy = np.append(0, np.cumsum(counts)), RatioSchedule((alpha, alpha))
    windows = Windows(offsets=first, spans=np.zeros((first[-1], 2), np.int64), combine=combine)
    survival = Survival(int(first[-1]), 3, policy, windows)
    alive = list(range(len(counts)))
    for stage in range(2):
        scores = [data.draw(st.lists(st.floats(0, 1), min_size=counts[c], max_size=counts[c])) for c in alive]
        folded = [max(each) if combine == "best" else sum(each) / len(each) for each in scores]
        survival.end(stage, np.asarray([score for each in scores for score in each]))
        alive = [alive[place] for place in policy.survivors(stage, np.asarray(folded)).tolist()]
        assert survival.alive.tolist() == [row for c in alive for row in range(first[c], first[c + 1])]
        assert survival.alive_candidates == len(alive) == policy.expected_alive(len(counts))[stage + 1]


def test_cost_needs_one_ratio_per_exit() -> None:
    """A schedule with too few or too many ratios is an error."""
    with pytest.raises(ValueError, match="2 drop ratios"):
        relative_cost((2, 2, 2), (0.3,))


def test_a_cost_needs_questions_and_a_schedule_that_fits() -> None:
    """Without questions, or with a policy for other stages, the error says what is wrong."""
    with pytest.raises(ValueError, match="3 stages take 2 drop ratios, not 1"):
        cost_of([10], (2, 2, 2), RatioSchedule((0.5,)))
    with pytest.raises(ValueError, match="no question"):
        cost_of([], (2, 2, 2), RatioSchedule((0.5, 0.5)))


@given(st.lists(st.integers(1, 300), min_size=1, max_size=5), st.floats(0.0, 0.9), st.integers(1, 30))
def test_a_cost_lies_between_the_first_stage_and_everything(sizes: list[int], alpha: float, minimum: int) -> None:
    """The cost lies between the first stage and all stages, and a higher minimum never lowers it."""
    policies = [RatioSchedule((round(alpha, 2),) * 2, least) for least in (minimum, minimum + 1)]
    costs = [cost_of(sizes, (2, 2, 2), policy) for policy in policies]
    assert 1 / 3 < costs[0] <= costs[1] <= 1.0
