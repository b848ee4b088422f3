"""Admission and scheduling together, simulated: who is refused, and how long the others wait."""

from __future__ import annotations

import numpy as np
import pytest
from tests.service.simulation import BOUND, InOrder, Shape, Simulated, arrivals, loop, serve

MINI = (2.0, 2.0, 1.5)
SHAPES = {
    "cerberank-mini, int8": Shape(MINI, 600.0),
    "MiniLM-L6, fp32": Shape((1.0,), 274.0),
    "B11 3H1, int8": Shape((4.0, 2.0, 2.0, 3.0), 75.0),
}
"""Models with their rates on two otherwise idle cores. The first two rates were measured; the third is assumed, with an
eighth of the first model's rate."""
MIX = {4: 0.3, 20: 0.3, 50: 0.2, 200: 0.2}
"""Sizes of questions, with their shares."""
CLIENTS = [[4, 4, 50, 200]] * 16
"""The sizes from which each client of a closed loop draws its questions."""
RUNS = 20


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_below_the_capacity_only_those_are_refused_that_would_wait_too_long(shape: Shape) -> None:
    """At 0.7 of it the refused share is at most a point above the share that waits beyond the bound when all are
    accepted.
    """
    coming = arrivals(0.7 * shape.rate, 200.0, MIX)
    questions, bounded, unbounded = len(coming), Simulated(shape), Simulated(shape, bound=np.inf)
    refused = serve(bounded, list(coming))
    serve(unbounded, coming)
    assert refused <= sum(each.queued > BOUND for each in unbounded.answers) + 0.01 * questions


def closed_loops(rate: float) -> list[Simulated]:
    """Runs of 20 seconds, each with other questions, of cerberank-mini at this rate."""
    runs = [Simulated(Shape(MINI, rate), slowness=(0.95, 1.05)) for _ in range(RUNS)]
    for seed, run in enumerate(runs):
        loop(run, CLIENTS, 20.0, seed)
    return runs


def test_clients_that_first_come_first_served_would_answer_in_time_are_not_refused() -> None:
    """Sixteen of them, two quiet cores, and sizes at random: none is refused, and in the median of the runs the longest
    answer takes at most 8 seconds for 200 candidates, 5 for 50 and 1 for 4.
    """
    runs = closed_loops(400.0)
    assert [run.refusals for run in runs] == [[]] * RUNS
    for candidates, most in ((200, 8.0), (50, 5.0), (4, 1.0)):
        longest = [max(each.latency for each in run.answers if each.candidates == candidates) for run in runs]
        assert np.median(longest) <= most


def test_beside_a_busy_core_no_more_are_refused_than_in_the_order_of_arrival() -> None:
    """With the same bound; and no small question at all."""
    in_order = [InOrder(200.0) for _ in range(RUNS)]
    for seed, run in enumerate(in_order):
        loop(run, CLIENTS, 20.0, seed)
    refused = [candidates for run in closed_loops(200.0) for candidates in run.refusals]
    assert 4 not in refused
    assert len(refused) <= sum(len(run.refusals) for run in in_order)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("mix", [{200: 1.0}, MIX], ids=["200", "mixed"])
def test_at_three_times_the_capacity_no_question_waits_for_more_than_twice_the_bound(
    shape: Shape, mix: dict[int, float]
) -> None:
    """And its own time; questions of one size wait for the bound and a tenth. The model is hardly ever idle, and every
    question is answered once or given up by its client. The smallest of mixed questions are not refused.
    """
    service, seconds = Simulated(shape, slowness=(0.95, 1.05)), 60.0
    coming = arrivals(3.0 * shape.rate, seconds, mix)
    questions = len(coming)
    gave_up = serve(service, coming, seconds)
    assert max(each.queued - each.alone for each in service.answers) <= 2.0 * BOUND
    if len(mix) == 1:
        assert max(each.queued for each in service.answers) <= 1.1 * BOUND
    assert max((each.queued for each in service.answers if each.candidates == 4), default=0.0) <= 2.0
    assert 4 not in service.refusals
    assert len(service.answers) + gave_up == questions
    assert len(service.refusals) > gave_up > 0
    ended = max(each.arrival + each.latency for each in service.answers)
    assert sum(each.candidates for each in service.answers) / ended >= 0.95 * shape.rate


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_question_that_comes_after_its_retry_after_is_accepted_when_no_other_came(shape: Shape) -> None:
    """The time is true: the queue has room for it by then, and had none a second before."""
    service = Simulated(shape)
    while not (wait := service.offer(0.0, 100)):
        pass
    assert wait > 1 or service.admission.seconds < BOUND + 1.0
    serve(service, [(wait - 0.001, 0, 100)])
    assert len(service.refusals) == 1
