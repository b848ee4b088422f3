from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from prometheus_client import generate_latest
from tests.service.asking import Clock, SlowBackend, busy, error, held, ranked
from tests.service.conftest import Start
from tests.service.fakes import GIVES_NAN, RAISES, SECRET, FakeBackend, FakeState, Faults
from tests.service.observe import wait_until

from cerberank_models.backends.stage_contract import StageOutput
from cerberank_models.drop import RatioSchedule
from cerberank_models.encoding import Candidate
from cerberank_models.rank_pairs import rank_pairs
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.telemetry.metrics import Metrics


@pytest.mark.parametrize(("marker", "stage"), [(RAISES, 0), (GIVES_NAN, 1), (RAISES, 2)])
def test_a_poisoned_question_fails_alone(start: Start, marker: str, stage: int) -> None:
    """Its neighbours in the same batch get the answers that they get without it."""
    backend = FakeBackend()
    backend.faults.stage = stage
    running = start(backend)
    with busy(backend, running.ask, ["hold the model"]) as first:
        before, poisoned, after = running.ask(["a", "b"]), running.ask(["c", marker]), running.ask(["d"])
    failure = error(poisoned)
    assert failure.kind is Kind.INTERNAL
    assert SECRET not in failure.message
    for future, texts in ((first, ["hold the model"]), (before, ["a", "b"]), (after, ["d"])):
        alone = rank_pairs(FakeBackend(), running.encoder.encode("how?", [Candidate(text=text) for text in texts]))
        np.testing.assert_array_equal(ranked(future).scores, alone.scores)
    assert running.engine.alive


def test_a_client_that_has_gone_frees_its_candidates_between_steps(start: Start) -> None:
    """Nothing more of it runs, what has run is counted as wasted, and its neighbour goes on."""
    backend = FakeBackend()
    counted = Metrics()
    running = start(backend, metrics=counted.for_model("fake-ranker", "7", 3), step_tokens=128)
    pairs = running.encoder.encode("how?", [Candidate(text="abcdefg")] * 40)
    with busy(backend, running.ticket, pairs) as gone:
        running.engine.cancel(gone.key)
        other = running.ask(["b"])
    assert error(gone.outcome).kind is Kind.UNAVAILABLE
    assert ranked(other).complete
    (ran,) = [count for stage, count in backend.runs if count > 1]
    assert ran == 40 // -(-pairs.tokens // 128)
    text = generate_latest(counted.registry).decode()
    assert f'cerberank_wasted_tokens_total{{model="fake-ranker",version="7"}} {float(pairs.tokens * ran / 40)}' in text
    assert 'cerberank_cancelled_requests_total{model="fake-ranker",version="7"} 1.0' in text
    assert running.engine.queued_tokens == 0


def test_out_of_memory_halves_the_steps_and_fails_nobody(start: Start) -> None:
    """One large question, which no bisection by questions could save."""
    running = start(FakeBackend(faults=Faults(memory_tokens=300)), step_tokens=2000)
    texts = [f"{number} abcdefg" for number in range(150)]
    pairs = running.encoder.encode("how?", [Candidate(text=text) for text in texts])
    policy = RatioSchedule((0.3, 0.0))
    got = ranked(running.ask(texts, policy=policy))
    np.testing.assert_array_equal(got.scores, rank_pairs(FakeBackend(), pairs, policy).scores)
    assert running.engine.step_tokens <= 300
    assert ranked(running.ask(texts)).complete


@pytest.mark.parametrize(
    ("fault", "device_failed"),
    [(SystemExit, False), (lambda: RuntimeError("CUDA error: device-side assert triggered"), True)],
)
def test_whatever_ends_the_thread_everybody_is_answered_once(
    start: Start, fault: Callable[[], BaseException], device_failed: bool
) -> None:
    """Every waiting question gets an error, the next one is refused, and the engine says whether the device failed."""
    backend = FakeBackend(faults=Faults(always=True, error=fault))
    running = start(backend)
    with held(backend):
        waiting = [running.ask(["a"])]
        assert backend.entered.wait(20)
        waiting += [running.ask(["b", "c"]) for _ in range(3)]
    assert {error(future).kind for future in waiting} == {Kind.UNAVAILABLE}
    running.engine.join(20.0)
    assert (running.engine.alive, running.engine.device_failed) == (False, device_failed)
    assert backend.runs == []
    with pytest.raises(ServiceError, match="failed") as refused:
        running.ask(["d"])
    assert refused.value.kind is Kind.UNAVAILABLE
    assert "Retry-After" in refused.value.headers


def test_memory_that_runs_out_when_states_are_compacted_fails_nobody(start: Start) -> None:
    """The states are given up instead, and run again when they are needed."""

    class Tight(FakeBackend):
        def select(self, state: FakeState, rows: NDArray[np.integer]) -> FakeState:
            if state.stage == 1:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return super().select(state, rows)

    running, texts = start(Tight()), ["a", "b", "c", "d"]
    policy = RatioSchedule((0.5, 0.0))
    pairs = running.encoder.encode("how?", [Candidate(text=text) for text in texts])
    np.testing.assert_array_equal(
        ranked(running.ask(texts, policy=policy)).scores, rank_pairs(FakeBackend(), pairs, policy).scores
    )
    assert running.engine.alive


def test_a_stop_answers_what_was_accepted(start: Start) -> None:
    """Running and queued questions alike; a later one is refused."""
    backend = FakeBackend()
    running = start(backend)
    with held(backend):
        accepted = [running.ask(["a"])]
        assert backend.entered.wait(20)
        accepted += [running.ask(["b", "c"]) for _ in range(5)]
        running.engine.stop(drain_seconds=60.0)
        with pytest.raises(ServiceError) as refused:
            running.ask(["d"])
        assert refused.value.kind is Kind.UNAVAILABLE
        assert refused.value.headers["Retry-After"] == "1"
    assert all(ranked(future).complete for future in accepted)
    running.engine.join(20.0)
    assert not running.engine.alive


def test_a_stop_without_time_answers_with_503(start: Start) -> None:
    """Nobody is left waiting."""
    backend = FakeBackend()
    running = start(backend)
    with held(backend):
        waiting = [running.ask(["a"])]
        assert backend.entered.wait(20)
        waiting += [running.ask(["b"]) for _ in range(5)]
        running.engine.stop(drain_seconds=0.0)
    assert {error(future).kind for future in waiting} == {Kind.UNAVAILABLE}
    assert running.engine.queued_tokens == 0


class WatchedStates(SlowBackend):
    """Knows which of the states that it has given are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[weakref.ref[FakeState]] = []

    def run(self, state: FakeState, stage: int) -> StageOutput[FakeState]:
        output = super().run(state, stage)
        if output.state is not None:
            self.given.append(weakref.ref(output.state))
        return output


def test_hidden_states_are_freed_when_a_deadline_answers(start: Start) -> None:
    """Not when the answer has been rendered: until then they would lie outside the bound of waiting states."""
    backend = WatchedStates()
    backend.clock = Clock()
    running = start(backend, clock=backend.clock)
    ticket = running.ticket(
        running.encoder.encode("how?", [Candidate(text=text) for text in "abc"]), received=100.0, deadline=100.5
    )
    assert not ranked(ticket.outcome).complete
    assert backend.given
    wait_until(lambda: not any(state() for state in backend.given))
