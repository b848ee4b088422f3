"""Admission and scheduling together on a clock of their own: minutes of three times the capacity."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass

import numpy as np
import pytest

from cerberank_service.engine.admission import Admission
from cerberank_service.engine.cost import StageSpeeds
from cerberank_service.engine.objective import UNLIMITED, objective_of
from cerberank_service.engine.scheduler import Scheduler, Step
from cerberank_service.errors import ServiceError
from cerberank_service.settings import Settings

WORK = (2.0, 2.0, 1.5)
TOKENS = 36
"""The tokens of every candidate."""
CAPACITY = 500.0
"""Candidates a second."""
STEP = 8192
OBJECTIVE = objective_of(Settings.model_fields["objective_slowdown"].default)
"""What the settings' defaults state."""
SECONDS = 120.0
MIX = {20: 0.6, 200: 0.3, 1000: 0.08, 5000: 0.02}


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    candidates: int
    ended: float
    limits: float
    """Seconds that it took, by those that it may take."""


class Service:
    """Admission and scheduler; a step takes the time that was predicted, `slowness` times (at random between two)."""

    def __init__(self, slowness: tuple[float, float] = (1.0, 1.0)) -> None:
        self.speeds = StageSpeeds(WORK, STEP)
        for stage, work in enumerate(WORK):
            self.speeds.observe(stage, 10**6, 10**6 * work / sum(WORK) / CAPACITY / TOKENS)
        self.admission = Admission(10**9, self.speeds, OBJECTIVE)
        self.scheduler = Scheduler(STEP, WORK)
        self.accepted: list[tuple[float, int]] = []
        self.left: dict[int, int] = {}
        self.answers: list[Answer] = []
        self.refusals = 0
        self._slowness, self._random = slowness, random.Random(0)

    def offer(self, now: float, candidates: int) -> int:
        """`Retry-After`, or 0 when the question is accepted."""
        tokens = (float(candidates * TOKENS),) * len(WORK)
        try:
            self.admission.check_objective(tokens, 1.0, now=now, received=now)
        except ServiceError as error:
            self.refusals += 1
            return error.retry_after or 1
        key = len(self.accepted)
        self.admission.enter(key, candidates * TOKENS, tokens, 1.0, received=now)
        self.scheduler.add(key, tokens)
        self.scheduler.queue(key, 0, np.arange(candidates), np.full(candidates, TOKENS))
        self.accepted.append((now, candidates))
        self.left[key] = candidates
        return 0

    def begin(self, now: float) -> tuple[Step, float]:
        """The next step, and when it ends."""
        step = self.scheduler.next_step()
        assert step is not None
        slowness = self._random.uniform(*self._slowness)
        return step, now + slowness * step.tokens * self.speeds.seconds_per_token[step.stage]

    def finish(self, step: Step, now: float) -> None:
        """Rows run on, questions whose last rows ran are answered."""
        for key, rows in step.parts:
            self.admission.ran(key, step.stage, len(rows) * TOKENS)
            if step.stage + 1 < len(WORK):
                self.scheduler.queue(key, step.stage + 1, rows, np.full(len(rows), TOKENS))
                continue
            self.left[key] -= len(rows)
            if not self.left[key]:
                self.scheduler.remove(key, answered=True)
                self.admission.leave(key, answered=True)
                came, candidates = self.accepted[key]
                limit = OBJECTIVE.limit(candidates / CAPACITY, 1.0)
                self.answers.append(Answer(candidates=candidates, ended=now, limits=(now - came) / limit))


def arrivals(load: float, seconds: float, seed: int) -> list[tuple[float, int, int]]:
    """Poisson arrivals at `load` times the capacity: (moment, number, candidates)."""
    rng = random.Random(seed)
    rate = load * CAPACITY / sum(size * share for size, share in MIX.items())
    coming: list[tuple[float, int, int]] = []
    moment = rng.expovariate(rate)
    while moment < seconds:
        coming.append((moment, len(coming), rng.choices(list(MIX), list(MIX.values()))[0]))
        moment += rng.expovariate(rate)
    return coming


def serve(service: Service, coming: list[tuple[float, int, int]], seconds: float) -> int:
    """Play until all are answered, with clients that obey Retry-After for `seconds`; returns how many gave up."""
    now, gave_up = 0.0, 0

    def arrive(until: float) -> None:
        nonlocal gave_up
        while coming and coming[0][0] <= until:
            moment, number, candidates = heapq.heappop(coming)
            if wait := service.offer(moment, candidates):
                if moment + wait < seconds:
                    heapq.heappush(coming, (moment + wait, number, candidates))
                else:
                    gave_up += 1

    while coming or len(service.scheduler):
        if not len(service.scheduler):
            now = max(now, coming[0][0])
        arrive(now)
        if len(service.scheduler):
            step, now = service.begin(now)
            arrive(now)
            service.finish(step, now)
    return gave_up


def late(service: Service) -> dict[int, float]:
    """p99 of the time that questions took by the time that they may take, by size."""
    return {
        size: float(np.percentile([each.limits for each in service.answers if each.candidates == size], 99))
        for size in MIX
    }


def test_the_defaults_have_an_objective() -> None:
    """Without one the backlog is minutes of work, and at twice the capacity the latency grows to that."""
    assert OBJECTIVE is not UNLIMITED


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("load", [2.0, 3.0])
def test_beyond_the_capacity_accepted_questions_meet_the_objective(load: float, seed: int) -> None:
    """p99 of every size; hardly a second is idle, and every question is answered once or given up by its client."""
    service, coming = Service(), arrivals(load, SECONDS, seed)
    asked = len(coming)
    gave_up = serve(service, coming, SECONDS)
    assert max(late(service).values()) <= 1.0
    assert len(service.answers) + gave_up == asked
    assert service.refusals > gave_up > 0
    goodput = sum(each.candidates for each in service.answers) / max(each.ended for each in service.answers) / CAPACITY
    assert goodput >= 0.95


@pytest.mark.parametrize("seed", range(2))
def test_a_tenth_of_error_in_the_measured_speed_is_allowed_for(seed: int) -> None:
    """Steps take up to a quarter longer than predicted."""
    service = Service(slowness=(0.95, 1.25))
    serve(service, arrivals(3.0, SECONDS, seed), SECONDS)
    assert max(late(service).values()) <= 1.0


def test_no_question_is_refused_at_half_the_capacity() -> None:
    """Chance alone fills no queue then."""
    service = Service()
    assert serve(service, arrivals(0.5, SECONDS, 0), SECONDS) == 0
    assert service.refusals == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_small_question_is_in_time_again_two_seconds_after_the_load(seed: int) -> None:
    """Accepted questions are close to their limits by then, and must not cause new ones to be refused for long."""
    service, coming = Service(), arrivals(3.0, SECONDS, seed)
    for tenth in range(20):
        heapq.heappush(coming, (SECONDS + 0.1 * tenth, -tenth, 20))
    serve(service, coming, SECONDS)
    came = {key: moment for key, (moment, _) in enumerate(service.accepted) if moment >= SECONDS}
    assert came, "none of the probes was let in"
    assert min(came.values()) <= SECONDS + 1.0
