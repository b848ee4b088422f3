"""The parts of a step when the model raises; each question gets its own rows' scores whatever happened."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.asking import Clock
from tests.service.fakes import RAISES, TOKEN_ID, FakeBackend, FakeState, Faults
from tests.service.pairs import numbered_pairs

from cerberank_models.backends.stage_contract import StageOutput
from cerberank_models.drop import RatioSchedule
from cerberank_service.engine.cost import StageSpeeds
from cerberank_service.engine.faults import DeviceFailedError
from cerberank_service.engine.pending import Pending
from cerberank_service.engine.runner import CALM_STEPS, LEAST_TOKENS, MOST_CALM_STEPS, Part, Runner, StepLimit
from cerberank_service.engine.work import Work
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.telemetry.series import RECOMPUTED_TOKENS


@dataclass
class Watched(FakeBackend):
    """Remembers the pairs of every run that was tried, and fails those of more than `fits` tokens."""

    tried: list[tuple[int, int]] = field(default_factory=list)
    """(stage, pairs)."""
    fits: int | None = None
    says: BaseException = field(default_factory=lambda: RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"))

    def run(self, state: FakeState, stage: int) -> StageOutput[FakeState]:
        self.tried.append((stage, len(state.pairs)))
        if self.fits is not None and state.pairs.tokens > self.fits:
            raise self.says
        return super().run(state, stage)


class Tensor:
    """The content of a real state: memory that lives as long as anybody refers to it."""


@dataclass(frozen=True)
class HeldState(FakeState):
    tensor: Tensor = field(default_factory=Tensor)


@dataclass
class Device(Watched):
    """A device whose memory is short while a failed attempt's tensors live."""

    failed: list[weakref.ref[Tensor]] = field(default_factory=list)
    alive: list[int] = field(default_factory=list)
    """Numbers of tensors of failed attempts that lived when the next one began."""

    def concat(self, states: Sequence[FakeState]) -> FakeState:
        joined = super().concat(states)
        return HeldState(joined.pairs, joined.stage)

    def run(self, state: FakeState, stage: int) -> StageOutput[FakeState]:
        if self.failed:
            self.alive.append(sum(each() is not None for each in self.failed))
        activations = Tensor()  # what the stage has computed when memory runs out
        try:
            return super().run(state, stage)
        except RuntimeError:
            assert isinstance(state, HeldState)
            self.failed += [weakref.ref(state.tensor), weakref.ref(activations)]
            raise

    def free_memory(self) -> None:
        self.alive.append(sum(each() is not None for each in self.failed))
        super().free_memory()


def question_of(count: int, *, poisoned: bool = False) -> Pending:
    """A question of `count` pairs, of 2, 3, ... tokens; a poisoned one makes the model raise."""
    pairs = numbered_pairs(count)
    if poisoned:
        pairs = replace(pairs, token_ids=np.full_like(pairs.token_ids, TOKEN_ID[RAISES]))
    work = Work(pairs=pairs, policy=RatioSchedule((0.0, 0.0), 1), received=0.0, deadline=None)
    return Pending(work=work, key=0, outcome=Future(), submitted=0.0)


def parts(*questions: Pending) -> list[Part]:
    return [Part(each, np.arange(len(each.work.pairs))) for each in questions]


def runner(backend: FakeBackend, *, step_tokens: int = 10_000, metrics: Any = None) -> Runner:
    counts = Metrics().for_model("fake-ranker", "7", len(backend.config.stages)) if metrics is None else metrics
    return Runner(backend, step_tokens=step_tokens, speeds=StageSpeeds((1.0, 1.0, 1.0)), metrics=counts, clock=Clock())


def expected(question: Pending, stage: int = 0) -> np.ndarray:
    return FakeBackend().run(FakeState(question.work.pairs, stage), stage).scores


def scores(question: Pending, results: list[tuple[Part, Any]]) -> np.ndarray:
    """The scores that came back for `question`, by row; every row once."""
    found = np.full(len(question.work.pairs), np.nan)
    for part, output in results:
        if part.question is question:
            assert isinstance(output, StageOutput)
            assert np.isnan(found[part.rows]).all()
            found[part.rows] = output.scores
    return found


def test_a_guilty_question_is_found_by_halves() -> None:
    """One of eight: 1 + 2 + 2 + 2 runs, the guilty one alone gets an error, the others their own scores."""
    backend, questions = Watched(), [question_of(3, poisoned=number == 5) for number in range(8)]
    results = list(runner(backend).run(0, parts(*questions)))
    assert [pairs for _, pairs in backend.tried] == [24, 12, 12, 6, 3, 3, 6]
    for question in questions:
        if question is questions[5]:
            ((_, error),) = [result for result in results if result[0].question is question]
            assert isinstance(error, ServiceError)
            assert error.kind is Kind.INTERNAL
        else:
            np.testing.assert_array_equal(scores(question, results), expected(question))


def test_what_does_not_fit_is_halved_by_rows() -> None:
    """A question of 20 rows comes back in parts that hold every row once, and fails nobody."""
    backend, questions = Watched(fits=200), [question_of(20), question_of(3)]
    running = runner(backend)
    results = list(running.run(0, parts(*questions)))
    assert len(results) > 2
    for question in questions:
        np.testing.assert_array_equal(scores(question, results), expected(question))


def test_steps_stay_as_small_as_the_memory_showed() -> None:
    """Half of what failed, never more than before, never less than LEAST_TOKENS; another error leaves them alone."""
    tokens = question_of(40).work.pairs.tokens
    for fits, size, left in ((tokens - 1, 10_000, tokens // 2), (tokens - 1, 200, 200), (10, 10_000, LEAST_TOKENS)):
        running = runner(Watched(fits=fits), step_tokens=size)
        list(running.run(0, parts(question_of(40))))
        assert running.step_tokens == left
    other = runner(FakeBackend(faults=Faults(always=True)))
    list(other.run(0, parts(question_of(40))))
    assert other.step_tokens == 10_000


def test_a_failed_attempts_tensors_are_dead_before_the_retry() -> None:
    """Before memory is freed, and before each later attempt, no tensor of a failed one lives."""
    backend, question = Device(fits=60), question_of(20)
    results = list(runner(backend).run(0, parts(question)))
    np.testing.assert_array_equal(scores(question, results), expected(question))
    assert len(backend.failed) >= 6
    assert set(backend.alive) == {0}
    assert backend.freed == len(backend.failed) / 2


def test_a_part_that_does_not_fit_beside_the_others_is_cut_too() -> None:
    """Memory may run out while a batch's output is divided, after the model has run."""

    class Tight(Watched):
        def select(self, state: FakeState, rows: Any) -> FakeState:
            if len(self.tried) == 1:
                raise MemoryError
            return super().select(state, rows)

    questions = [question_of(4), question_of(3)]
    results = list(runner(Tight()).run(0, parts(*questions)))
    for question in questions:
        np.testing.assert_array_equal(scores(question, results), expected(question))


def test_a_failed_device_ends_the_run() -> None:
    """No halving: whatever is tried next would fail as well."""
    backend = Watched(faults=Faults(always=True, error=lambda: RuntimeError("CUDA error: unspecified launch failure")))
    with pytest.raises(DeviceFailedError, match="unspecified launch failure"):
        list(runner(backend).run(0, parts(question_of(3), question_of(2))))
    assert len(backend.tried) == 1


def test_memory_that_cannot_be_given_back_is_a_failed_device() -> None:
    """CuBLAS cannot be initialised on a failed device either; giving memory back tells the two apart."""

    class Lost(Watched):
        def free_memory(self) -> None:
            raise RuntimeError("CUDA error: device-side assert triggered")

    says = RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`")
    with pytest.raises(DeviceFailedError, match="device-side assert"):
        list(runner(Lost(fits=0, says=says)).run(0, parts(question_of(3))))


def test_a_refused_call_while_memory_is_freed_ends_nothing() -> None:
    """Another thread's capture may forbid it for the moment: the batch is tried again in halves all the same."""

    class Refusing(Watched):
        def free_memory(self) -> None:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    results = list(runner(Refusing(fits=3)).run(0, parts(question_of(2))))
    assert [len(part.rows) for part, _ in results] == [1, 1]
    assert all(isinstance(output, StageOutput) for _, output in results)


def test_a_single_row_that_does_not_fit_is_an_error() -> None:
    """There is nothing left to halve: its question fails, and the run ends."""
    ((part, error),) = runner(Watched(fits=0)).run(0, parts(question_of(1)))
    assert len(part.rows) == 1
    assert isinstance(error, ServiceError)


def test_states_that_were_given_up_are_run_again() -> None:
    """The rows without a state start from their tokens, the others go on; scores come in the order that was asked."""
    backend, question = Watched(), question_of(6)
    metrics = Metrics().for_model("fake-ranker", "7", 3)
    running = runner(backend, metrics=metrics)
    for rows in ([0, 1, 2], [3, 4, 5]):
        ((part, output),) = running.run(0, [Part(question, np.asarray(rows))])
        assert isinstance(output, StageOutput)
        question.record(0, part.rows, output, backend)
    question.waiting_states.evict()  # of the shortest rows: 0, 1 and 2
    backend.tried.clear()
    order = np.asarray([4, 0, 5, 2])
    ((part, output),) = running.run(1, [Part(question, order)])
    assert isinstance(output, StageOutput)
    np.testing.assert_array_equal(output.scores, expected(question, 1)[order])
    assert backend.tried == [(0, 2), (1, 4)]
    (sample, _) = next(iter(metrics.child(RECOMPUTED_TOKENS, "0").collect())).samples
    assert sample.value == 2 + 4


def steps_until(limit: StepLimit, tokens: int) -> int:
    """Full steps that must fit until the limit is at least `tokens`."""
    count = 0
    while limit.tokens < tokens:
        limit.fitted(limit.tokens)
        count += 1
    return count


@given(st.integers(1, 200_000), st.lists(st.tuples(st.booleans(), st.integers(1, 200_000)), max_size=200))
def test_the_limit_stays_between_its_bounds(most: int, events: list[tuple[bool, int]]) -> None:
    """Never above the original, never below the least, whatever fits or fails."""
    limit = StepLimit(most)
    for fits, tokens in events:
        limit.fitted(tokens) if fits else limit.ran_out(tokens)
        assert min(most, LEAST_TOKENS) <= limit.tokens <= most


@given(st.integers(LEAST_TOKENS, 200_000), st.lists(st.integers(1, 400_000), max_size=20))
def test_the_original_size_comes_back(most: int, failed: list[int]) -> None:
    """However often memory ran out, a calm time brings the limit back in doublings."""
    limit = StepLimit(most)
    for tokens in failed:
        limit.ran_out(tokens)
    doublings = 1 + (most // LEAST_TOKENS).bit_length()
    assert steps_until(limit, most) <= doublings * MOST_CALM_STEPS


def test_each_failure_asks_for_twice_the_patience() -> None:
    """A size that never fits is tried less and less often."""
    limit, needed = StepLimit(8000), []
    for _ in range(8):
        limit.ran_out(8000)
        assert limit.tokens == 4000
        needed.append(steps_until(limit, 8000))
    assert needed == [min(CALM_STEPS * 2**number, MOST_CALM_STEPS) for number in range(8)]


def test_small_steps_prove_nothing() -> None:
    """Only steps of more than half of the limit count."""
    limit = StepLimit(8000)
    limit.ran_out(8000)
    for _ in range(10 * CALM_STEPS):
        limit.fitted(2000)
    assert limit.tokens == 4000


def test_a_failure_between_calm_steps_starts_the_count_anew() -> None:
    """The steps must fit one after another."""
    limit = StepLimit(8000)
    limit.ran_out(8000)
    for _ in range(CALM_STEPS - 1):
        limit.fitted(4000)
    limit.ran_out(4000)
    limit.fitted(2000)
    assert limit.tokens == 2000
