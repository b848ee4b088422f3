from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.service.fakes import (
    GIVES_NAN,
    RAISES,
    SECRET,
    FakeBackend,
    FakeState,
    Faults,
    checkpoint_for,
    ranker_config,
)

from cerberank_models.backend import StageOutput
from cerberank_models.encoding import Candidate, EncodedPairs, PairEncoder
from cerberank_models.rank import rank_pairs
from cerberank_service.engine import Engine
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.job import Job, Outcome, Ranked
from cerberank_service.metrics import EngineMetrics, Metrics

NO_DROP = (0.0, 0.0)


@pytest.fixture
def encoder(tmp_path: Path) -> PairEncoder:
    return checkpoint_for(FakeBackend(), tmp_path).encoder()


@dataclass
class Running:
    """An engine and a way to ask it."""

    engine: Engine
    encoder: PairEncoder

    def ask(self, texts: Sequence[str], **job: Any) -> Future[Outcome]:
        return self.submit(self.encoder.encode("how?", [Candidate(text=text) for text in texts]), **job)

    def submit(self, pairs: EncodedPairs, **job: Any) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        options = {"schedule": NO_DROP, "minimum": 1, "submitted": 0.0, "deadline": None} | job
        self.engine.submit(Job(pairs=pairs, resolve=future.set_result, **options))
        return future


Start = Callable[..., Running]


@pytest.fixture
def start(encoder: PairEncoder) -> Iterator[Start]:
    """Starts engines; they are stopped, and must end, after the test."""
    engines: list[Engine] = []

    def make(backend: FakeBackend, **options: Any) -> Running:
        counts = Metrics().for_model("fake-ranker", "7", len(backend.config.stages))
        engine = Engine(backend, **({"step_tokens": 10_000, "metrics": counts} | options))
        engine.start()
        engines.append(engine)
        return Running(engine, encoder)

    yield make
    for engine in engines:
        engine.stop(0.0)
        engine.join(20.0)
        assert not engine._thread.is_alive(), "the engine's thread did not end"


def ranked(future: Future[Outcome]) -> Ranked:
    outcome = future.result(timeout=20)
    assert isinstance(outcome, Ranked), outcome
    return outcome


def error(future: Future[Outcome]) -> ServiceError:
    outcome = future.result(timeout=20)
    assert isinstance(outcome, ServiceError)
    return outcome


def blocked() -> tuple[FakeBackend, threading.Event]:
    """A backend whose runs wait for the event."""
    gate = threading.Event()
    return FakeBackend(faults=Faults(gate=gate)), gate


texts = st.lists(st.text("abc d", min_size=0, max_size=30), min_size=1, max_size=12)
ratios = st.sampled_from([0.0, 0.3, 0.5, 0.9])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(texts, st.tuples(ratios, ratios), st.integers(1, 5)), min_size=1, max_size=5),
    st.sampled_from([1, 60, 400, 10_000]),
)
def test_mixed_questions_get_the_answers_that_each_gets_alone(
    start: Start, encoder: PairEncoder, asked: list[tuple[list[str], tuple[float, float], int]], step_tokens: int
) -> None:
    """Whatever shares a batch, and however small the steps, the result is that of `rank_pairs`."""
    running = start(FakeBackend(), step_tokens=step_tokens)
    futures = [running.ask(texts, schedule=schedule, minimum=minimum) for texts, schedule, minimum in asked]
    for (texts, schedule, minimum), future in zip(asked, futures, strict=True):
        pairs = encoder.encode("how?", [Candidate(text=text) for text in texts])
        alone = rank_pairs(FakeBackend(), pairs, schedule=schedule, minimum=minimum)
        got = ranked(future)
        assert got.complete
        np.testing.assert_array_equal(got.order, alone.order)
        np.testing.assert_array_equal(got.scores, alone.scores)
        np.testing.assert_array_equal(got.stages, alone.stages)
        np.testing.assert_array_equal(got.heads, alone.head_scores)


def test_a_single_stage_without_exits_works(start: Start) -> None:
    """A plain cross-encoder has nothing to drop after."""
    running = start(FakeBackend(ranker_config(exits=0, heads=1)))
    assert ranked(running.ask(["a", "b"], schedule=())).stages.tolist() == [0, 0]


def test_requests_that_wait_share_batches(start: Start) -> None:
    """What came while the model was busy runs together, and one thread runs it all."""
    backend, gate = blocked()
    running = start(backend)
    first = running.ask(["a"])
    assert backend.entered.wait(20)
    later = [running.ask(["b", "c"]) for _ in range(3)]
    gate.set()
    for future in (first, *later):
        ranked(future)
    assert backend.runs == [(0, 1), (1, 1), (2, 1), (0, 6), (1, 6), (2, 6)]
    assert backend.threads == {"engine"}


def test_a_large_question_runs_in_several_steps(start: Start) -> None:
    """No step holds more tokens than its budget."""
    backend = FakeBackend()
    running = start(backend, step_tokens=128)
    pairs = running.encoder.encode("how?", [Candidate(text="abcdefg")] * 40)
    ranked(running.submit(pairs))
    most = 128 // int(pairs.lengths.max())
    assert max(count for _, count in backend.runs) == most
    assert sum(count for stage, count in backend.runs if stage == 0) == 40


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


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


class SlowBackend(FakeBackend):
    """Every run takes a second of the clock that it is given."""

    clock: Clock

    def run(self, state: FakeState, stage: int) -> StageOutput[FakeState]:
        self.clock.now += 1.0
        return super().run(state, stage)


@pytest.mark.parametrize(
    ("deadline", "stage", "complete"), [(100.5, 0, False), (101.5, 1, False), (102.5, 2, True), (500.0, 2, True)]
)
def test_a_deadline_is_answered_with_what_is_known(start: Start, deadline: float, stage: int, complete: bool) -> None:
    """After the first stage that ends past it; the order is that of the stages that were run."""
    backend = SlowBackend()
    backend.clock = Clock()
    running = start(backend, clock=backend.clock)
    got = ranked(running.ask(["a", "b", "c"], deadline=deadline, submitted=100.0))
    assert (got.stages.tolist(), got.complete) == ([stage] * 3, complete)
    pairs = running.encoder.encode("how?", [Candidate(text=text) for text in "abc"])
    assert got.scores.tolist() == _stage_scores(pairs, stage).tolist()
    assert got.scores[got.order].tolist() == sorted(got.scores, reverse=True)


def test_a_deadline_that_has_passed_still_gets_the_first_stage(start: Start) -> None:
    """There is no order before it; an answer without one would be no answer."""
    backend = SlowBackend()
    backend.clock = Clock()
    running = start(backend, clock=backend.clock)
    got = ranked(running.ask(["a", "b"], deadline=1.0))
    assert (got.stages.tolist(), got.complete) == ([0, 0], False)


def test_times_add_up(start: Start) -> None:
    """Queue ends when the first step begins, compute when the answer is there."""
    backend = SlowBackend()
    backend.clock = Clock()
    running = start(backend, clock=backend.clock)
    got = ranked(running.ask(["a"], submitted=97.0))
    assert (got.queue_seconds, got.compute_seconds) == (3.0, 3.0)


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


def test_many_threads_may_submit(start: Start) -> None:
    """Every question of every client gets its own answer."""
    running = start(FakeBackend(), step_tokens=200)
    answers: dict[str, Ranked] = {}

    def client(name: str) -> None:
        for number in range(10):
            texts = [f"{name} {number} {index}" for index in range(1 + number)]
            answers[f"{name}{number}"] = ranked(running.ask(texts, schedule=(0.5, 0.5)))

    threads = [threading.Thread(target=client, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(answers) == 40
    for name, answer in answers.items():
        texts = [f"{name[0]} {name[1:]} {index}" for index in range(1 + int(name[1:]))]
        pairs = running.encoder.encode("how?", [Candidate(text=text) for text in texts])
        alone = rank_pairs(FakeBackend(), pairs, schedule=(0.5, 0.5))
        np.testing.assert_array_equal(answer.scores, alone.scores)


def _stage_scores(pairs: EncodedPairs, stage: int) -> Any:
    backend = FakeBackend()
    state = backend.start(pairs)
    for number in range(stage):
        following = backend.run(state, number).state
        assert following is not None
        state = following
    return backend.run(state, stage).scores
