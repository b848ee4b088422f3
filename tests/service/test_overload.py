"""Admission and scheduling together, simulated (`overload.py`): who is refused, and how long the others wait."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from tools.overload import BOUND, LOOPS, MIX, SHAPES, Replica, arrivals, loop, refused_and_beyond, serve

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
    assert max(each.queued for replica in (on, off) for each in replica.answers if each.candidates == min(LOOPS)) <= 2.0
    if sum(LOOPS) / SHAPES[shape].rate < BOUND:
        assert on.refusals == []
    for size in {candidates for candidates, _ in on.refusals}:
        waits = [each.queued for each in off.answers if each.candidates == size and each.arrival > 1.0]
        assert min(waits, default=np.inf) > 0.7 * BOUND


@pytest.mark.parametrize("size", [20, 200])
@pytest.mark.parametrize("shape", SHAPES)
def test_at_three_times_the_capacity_questions_of_one_size_wait_for_the_bound(shape: str, size: int) -> None:
    """And a tenth; the model is hardly ever idle, and every question is answered once or given up by its client."""
    replica = Replica(SHAPES[shape], slowness=(0.95, 1.05))
    coming = arrivals(3.0 * replica.shape.rate, SECONDS, 0, {size: 1.0})
    questions = len(coming)
    gave_up = serve([replica], coming, SECONDS)
    assert max(each.queued for each in replica.answers) <= 1.1 * BOUND
    assert len(replica.answers) + gave_up == questions
    assert len(replica.refusals) > gave_up > 0
    assert _goodput(replica) >= 0.95


@pytest.mark.parametrize("shape", SHAPES)
def test_at_three_times_the_capacity_mixed_questions_wait_for_the_bound(shape: str) -> None:
    """And a tenth, but for one in forty: large ones that came before any was refused are overtaken by small ones."""
    replica = Replica(SHAPES[shape], slowness=(0.95, 1.05))
    serve([replica], arrivals(3.0 * replica.shape.rate, 2 * SECONDS, 0), 2 * SECONDS)
    late = sum(each.queued > 1.1 * BOUND for each in replica.answers)
    assert late <= 0.025 * len(replica.answers)
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
    ended = max(each.arrival + each.queued + each.candidates / rate for each in replica.answers)
    return sum(each.candidates for each in replica.answers) / ended / rate
