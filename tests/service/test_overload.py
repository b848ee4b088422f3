"""Admission and scheduling together, simulated (`overload.py`): who is refused, and how long the others wait."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from tools.overload import (
    BOUND,
    DRAWN_RATES,
    LOOPS,
    MIX,
    SHAPES,
    Replica,
    arrivals,
    drawn,
    loop,
    refused_and_beyond,
    serve,
)

SECONDS = 60.0


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("load", [0.3, 0.7])
@pytest.mark.parametrize("size", [200, None])
def test_below_the_capacity_only_those_are_refused_that_would_wait_too_long(
    shape: str, load: float, size: int | None
) -> None:
    """The refused share is at most a point above the share that waits beyond the bound with admission off."""
    refused, beyond = refused_and_beyond(SHAPES[shape], load, MIX if size is None else {size: 1.0}, seconds=200.0)
    assert refused <= beyond + 0.01
    assert load > 0.3 or refused == 0.0


@pytest.mark.parametrize("shape", SHAPES)
def test_sixteen_clients_that_wait_for_their_answers_are_not_refused(shape: str) -> None:
    """No question is refused that waits less than 0.7 of the bound with admission off, and none at all where the
    sixteen of them are less work than the bound. Small ones wait for steps, not for the backlog of 20 seconds.
    """
    on, off = Replica(SHAPES[shape]), Replica(SHAPES[shape], bound=np.inf)
    loop(on, LOOPS, 40.0)
    loop(off, LOOPS, 40.0)
    assert max(each.queued for replica in (on, off) for each in replica.answers if each.candidates == 4) <= 2.5
    if sum(map(sum, LOOPS)) / SHAPES[shape].rate < BOUND:
        assert on.refusals == []
    for size in {candidates for candidates, _ in on.refusals}:
        waits = [each.queued for each in off.answers if each.candidates == size and each.arrival > 1.0]
        assert min(waits, default=np.inf) > 0.7 * BOUND


def test_clients_that_first_come_first_served_would_answer_in_time_are_not_refused() -> None:
    """Sixteen of them, two quiet cores, and sizes at random: none is refused, and in the median of the runs the longest
    answer takes at most 8 seconds for 200 candidates, 5 for 50 and 1 for 4.
    """
    runs = drawn(DRAWN_RATES["two cores"])
    assert [run.refusals for run in runs] == [[]] * len(runs)
    for candidates, most in ((200, 8.0), (50, 5.0), (4, 1.0)):
        longest = [max(each.latency for each in run.answers if each.candidates == candidates) for run in runs]
        assert np.median(longest) <= most


def test_beside_a_busy_core_no_more_are_refused_than_in_the_order_of_arrival() -> None:
    """With the same bound; and no small question at all."""
    rate = DRAWN_RATES["one of them busy"]
    ours, in_order = drawn(rate), drawn(rate, in_order=True)
    refused = [candidates for run in ours for candidates, _ in run.refusals]
    assert 4 not in refused
    assert len(refused) <= sum(len(run.refusals) for run in in_order)


@pytest.mark.parametrize("size", [20, 200])
@pytest.mark.parametrize("shape", SHAPES)
def test_at_three_times_the_capacity_questions_of_one_size_wait_for_the_bound(shape: str, size: int) -> None:
    """And a tenth; the model is hardly ever idle, and every question is answered once or given up by its client."""
    replica = Replica(SHAPES[shape], slowness=(0.95, 1.05))
    coming = arrivals(3.0 * replica.shape.rate, SECONDS / 2, 0, {size: 1.0})
    questions = len(coming)
    gave_up = serve([replica], coming, SECONDS / 2)
    assert max(each.queued for each in replica.answers) <= 1.1 * BOUND
    assert len(replica.answers) + gave_up == questions
    assert len(replica.refusals) > gave_up > 0
    assert _goodput(replica) >= 0.95


@pytest.mark.parametrize("shape", SHAPES)
def test_at_three_times_the_capacity_no_question_waits_for_more_than_twice_the_bound(shape: str) -> None:
    """Mixed sizes: large ones are overtaken by small ones that come later, but not for ever."""
    replica = Replica(SHAPES[shape], slowness=(0.95, 1.05))
    serve([replica], arrivals(3.0 * replica.shape.rate, 2 * SECONDS, 0), 2 * SECONDS)
    assert max(each.queued - each.alone for each in replica.answers) <= 2.0 * BOUND
    assert max(each.queued for each in replica.answers if each.candidates == 4) <= 2.0
    assert _goodput(replica) >= 0.95


@pytest.mark.parametrize("shape", SHAPES)
def test_a_question_that_comes_after_its_retry_after_is_accepted_when_no_other_came(shape: str) -> None:
    """The time is true: the queue has room for it by then, and had none a second before."""
    replica = Replica(SHAPES[shape])
    while not (wait := replica.offer(0.0, 100)):
        pass
    assert wait > 1 or replica.admission.seconds < BOUND + 1.0
    serve([replica], [(wait - 0.001, 0, 100)])
    assert len(replica.refusals) == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_small_question_is_answered_soon_again_after_an_overload(seed: int) -> None:
    """None of those that come once the load has gone is refused."""
    replica, coming = Replica(SHAPES["cerberank-mini, int8"]), arrivals(1800.0, SECONDS, seed)
    for tenth in range(20):
        heapq.heappush(coming, (SECONDS + 0.1 * tenth, -tenth, 4))
    serve([replica], coming, SECONDS)
    after = [each for each in replica.answers if each.arrival >= SECONDS]
    assert len(after) == 20


def _goodput(replica: Replica) -> float:
    """Candidates a second until the last answer, as a share of the capacity."""
    rate = replica.shape.rate
    ended = max(each.arrival + each.latency for each in replica.answers)
    return sum(each.candidates for each in replica.answers) / ended / rate
