from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.service.asking import blocked, error, ranked
from tests.service.conftest import Start
from tests.service.fakes import GIVES_NAN, RAISES, SECRET, FakeBackend, Faults

from cerberank_models.encoding import Candidate
from cerberank_models.rank import rank_pairs
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.metrics import EngineMetrics, Metrics


@pytest.mark.parametrize("stage", [0, 1, 2])
@pytest.mark.parametrize("marker", [RAISES, GIVES_NAN])
def test_a_poisoned_question_fails_alone(start: Start, marker: str, stage: int) -> None:
    """Its neighbours in the same batch get the answers that they get without it."""
    backend, gate = blocked()
    backend.faults.stage = stage
    running = start(backend)
    first = running.ask(["hold the model"])
    assert backend.entered.wait(20)
    before, poisoned, after = running.ask(["a", "b"]), running.ask(["c", marker]), running.ask(["d"])
    gate.set()
    failure = error(poisoned)
    assert failure.kind is Kind.INTERNAL
    assert SECRET not in failure.message
    for future, texts in ((first, ["hold the model"]), (before, ["a", "b"]), (after, ["d"])):
        alone = rank_pairs(FakeBackend(), running.encoder.encode("how?", [Candidate(text=text) for text in texts]))
        np.testing.assert_array_equal(ranked(future).scores, alone.scores)
    assert running.engine.alive


def test_the_engine_goes_on_after_a_failure(start: Start) -> None:
    """A backend that failed once is asked again."""
    backend = FakeBackend(faults=Faults(always=True))
    running = start(backend)
    assert error(running.ask(["a"])).kind is Kind.INTERNAL
    backend.faults.always = False
    assert ranked(running.ask(["a"])).complete
    assert running.engine.queued_tokens == 0


def test_a_stop_answers_what_was_accepted(start: Start) -> None:
    """Running and queued questions alike; a later one is refused."""
    backend, gate = blocked()
    running = start(backend)
    accepted = [running.ask(["a"])]
    assert backend.entered.wait(20)
    accepted += [running.ask(["b", "c"]) for _ in range(5)]
    running.engine.stop(drain_seconds=60.0)
    with pytest.raises(ServiceError) as refused:
        running.ask(["d"])
    assert refused.value.kind is Kind.UNAVAILABLE
    assert refused.value.headers["Retry-After"] == "1"
    gate.set()
    assert all(ranked(future).complete for future in accepted)
    running.engine.join(20.0)
    assert not running.engine.alive


def test_a_stop_without_time_answers_with_503(start: Start) -> None:
    """Nobody is left waiting."""
    backend, gate = blocked()
    running = start(backend)
    waiting = [running.ask(["a"])]
    assert backend.entered.wait(20)
    waiting += [running.ask(["b"]) for _ in range(5)]
    running.engine.stop(drain_seconds=0.0)
    gate.set()
    assert {error(future).kind for future in waiting} == {Kind.UNAVAILABLE}
    assert running.engine.queued_tokens == 0


class BrokenMetrics(EngineMetrics):
    """Fails outside the model, where no fence stands."""

    def step(self, stage: int, *, tokens: int, seconds: float, backend: Any) -> None:
        raise OSError("out of something")


def test_a_dead_thread_answers_everybody_and_refuses_the_next(start: Start) -> None:
    """A fault outside the model ends the thread; the engine then says so, and nobody is left waiting."""
    backend, gate = blocked()
    running = start(backend, metrics=BrokenMetrics(Metrics(), "fake-ranker", "7", 0))
    waiting = [running.ask(["a"])]
    assert backend.entered.wait(20)
    waiting += [running.ask(["b"]) for _ in range(3)]
    gate.set()
    assert {error(future).kind for future in waiting} == {Kind.UNAVAILABLE}
    running.engine.join(20.0)
    assert not running.engine.alive
    with pytest.raises(ServiceError) as refused:
        running.ask(["c"])
    assert refused.value.kind is Kind.UNAVAILABLE
    assert "failed" in refused.value.message
    assert "Retry-After" in refused.value.headers
