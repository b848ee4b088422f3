from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.margin import Margin
from tests.service.asking import Clock, Running, SlowBackend, busy, error, ranked
from tests.service.conftest import Start
from tests.service.fakes import FakeBackend, ranker_config
from tests.service.observe import wait_until

from cerberank_models.drop import UNSCORED, DropPolicy, RatioSchedule
from cerberank_models.encoding import Candidate, EncodedPairs, PairEncoder
from cerberank_models.rank_pairs import rank_pairs
from cerberank_service.engine.engine import Engine
from cerberank_service.engine.low_priority import LiveTraffic
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.telemetry.metrics import Metrics, VersionMetrics
from cerberank_service.telemetry.series import OFFERED_SECONDS, STATE_BYTES

texts = st.lists(st.text("abc d", min_size=0, max_size=30), min_size=1, max_size=12)
ratios = st.sampled_from([0.0, 0.3, 0.5, 0.9])


policies = st.builds(RatioSchedule, st.tuples(ratios, ratios), st.integers(1, 5)) | st.builds(
    Margin, st.just(3), st.sampled_from([0.0, 0.2, 0.6, 1.0])
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(texts, policies), min_size=1, max_size=5), st.sampled_from([1, 60, 400, 10_000]))
def test_mixed_questions_get_the_answers_that_each_gets_alone(
    start: Start, encoder: PairEncoder, questions: list[tuple[list[str], DropPolicy]], step_tokens: int
) -> None:
    """Whatever shares a batch, drops by ratios or not, and however small the steps: it is that of `rank_pairs`."""
    running = start(FakeBackend(), step_tokens=step_tokens)
    futures = [running.ask(texts, policy=policy) for texts, policy in questions]
    for (texts, policy), future in zip(questions, futures, strict=True):
        pairs = encoder.encode("how?", [Candidate(text=text) for text in texts])
        alone = rank_pairs(FakeBackend(), pairs, policy)
        got = ranked(future)
        assert got.complete
        np.testing.assert_array_equal(got.order, alone.order)
        np.testing.assert_array_equal(got.scores, alone.scores)
        np.testing.assert_array_equal(got.stages, alone.stages)
        np.testing.assert_array_equal(got.heads, alone.heads)


def test_a_last_stage_without_a_layer_is_served(start: Start) -> None:
    """Heads of no layer cost no work in fairness, a little in predicted time, and their questions end."""
    config = ranker_config(head_layers=0)
    running = start(FakeBackend(config), step_tokens=60)
    assert config.stage_layers[-1] == 0.0
    assert min(running.engine.speeds.seconds_per_token) > 0.0
    assert running.engine.predict((0.0, 0.0, 100.0), 0) > 0.0
    for future in [running.ask([f"{number} abc" for number in range(20)]) for _ in range(3)]:
        assert ranked(future).stages.tolist() == [2] * 20


def recording_states() -> tuple[VersionMetrics, list[int]]:
    """Metrics for an engine, and the bytes of states that it reports to them."""
    metrics, held = Metrics().for_model("fake-ranker", "7", 3), list[int]()
    metrics.child(STATE_BYTES).set = held.append  # type: ignore[method-assign]
    return metrics, held


@pytest.mark.parametrize("schedule", [(0.0, 0.0), (0.5, 0.0), (0.5, 0.5)])
@pytest.mark.parametrize("state_bytes", [0, 2000, 10**9])
def test_states_that_do_not_fit_are_run_again(start: Start, state_bytes: int, schedule: tuple[float, float]) -> None:
    """The answer does not depend on the memory for states, and the states stay within its limit."""
    backend = FakeBackend()
    metrics, held = recording_states()
    running = start(backend, state_bytes=state_bytes, step_tokens=128, metrics=metrics)
    texts = [f"{number} abcdefg" for number in range(60)]
    policy = RatioSchedule(schedule)
    got = [ranked(running.ask(texts, policy=policy)), ranked(running.ask(texts[::2], policy=policy))]
    for answer, asked in zip(got, (texts, texts[::2]), strict=True):
        pairs = running.encoder.encode("how?", [Candidate(text=text) for text in asked])
        alone = rank_pairs(FakeBackend(), pairs, policy)
        np.testing.assert_array_equal(answer.scores, alone.scores)
        np.testing.assert_array_equal(answer.order, alone.order)
    assert max(held) <= state_bytes
    ran = sum(count for _, count in backend.runs)
    needed = sum(sum(policy.expected_alive(count)) for count in (60, 30))
    assert ran > needed if state_bytes == 0 else ran >= needed
    assert ran == needed or state_bytes < 10**9


def test_requests_that_wait_share_batches(start: Start) -> None:
    """Requests that came while the model was busy run together, and one thread runs it all."""
    backend = FakeBackend()
    running = start(backend)
    with busy(backend, running.ask, ["a"]) as first:
        later = [running.ask(["b", "c"]) for _ in range(3)]
    for future in (first, *later):
        ranked(future)
    assert backend.runs == [(0, 1), (1, 1), (2, 1), (0, 6), (1, 6), (2, 6)]
    assert backend.threads == {"engine"}


@pytest.mark.parametrize(
    ("deadline", "stage", "complete"), [(100.5, 0, False), (101.5, 1, False), (102.5, 2, True), (500.0, 2, True)]
)
def test_a_deadline_is_answered_with_what_is_known(start: Start, deadline: float, stage: int, complete: bool) -> None:
    """After the first stage that ends past it; the order is that of the stages that were run."""
    backend = SlowBackend()
    backend.clock = Clock()
    running = start(backend, clock=backend.clock)
    got = ranked(running.ask(["a", "b", "c"], deadline=deadline))
    assert (got.stages.tolist(), got.complete) == ([stage] * 3, complete)
    pairs = running.encoder.encode("how?", [Candidate(text=text) for text in "abc"])
    assert got.scores.tolist() == _stage_scores(pairs, stage).tolist()
    assert got.scores[got.order].tolist() == sorted(got.scores, reverse=True)


def test_a_deadline_that_has_passed_still_gets_the_first_stage(start: Start) -> None:
    """There is no order before it; an answer without one would be no answer."""
    backend = SlowBackend()
    backend.clock = Clock()
    running = start(backend, clock=backend.clock)
    pairs = running.encoder.encode("how?", [Candidate(text=text) for text in "ab"])
    got = ranked(running.submit(pairs, deadline=1.0))
    assert (got.stages.tolist(), got.complete) == ([0, 0], False)
    assert got.scores.tolist() == _stage_scores(pairs, 0).tolist()


def test_a_deadline_within_the_first_stage_is_answered_with_a_part(start: Start) -> None:
    """One step after it at the latest: what was scored comes first, the rest says that it was not."""
    backend = SlowBackend()
    backend.clock = Clock()
    running = start(backend, clock=backend.clock, step_tokens=128)
    pairs = running.encoder.encode("how?", [Candidate(text="abcdefg")] * 40)
    got = ranked(running.submit(pairs, deadline=101.5))
    assert not got.complete
    scored = got.stages == 0
    assert 0 < scored.sum() < 40
    assert (got.stages[~scored] == UNSCORED).all()
    assert scored[got.order[: scored.sum()]].all()
    assert got.compute_seconds == 2.0


def test_a_question_that_came_too_late_to_its_turn_is_refused(start: Start) -> None:
    """Rather than answered long after its client has given up, at the cost of the others."""
    backend = FakeBackend()
    clock = Clock()
    running = start(backend, clock=clock)
    with busy(backend, running.ask, ["a"]) as first:
        late, other = running.ask(["b"], deadline=105.0), running.ask(["c"])
        clock.now = 106.0
    refused = error(late)
    assert refused.kind is Kind.UNAVAILABLE
    assert refused.retry_after is not None
    assert ranked(first).complete
    assert ranked(other).complete


def test_what_would_wait_too_long_is_refused_at_admission(start: Start) -> None:
    """Counted from when the request came, not from when it was read and encoded; a far deadline does not change that.

    The refusal says what was predicted, and both outcomes count as offered work.
    """
    backend = FakeBackend()
    metrics = Metrics()
    running = start(backend, clock=Clock(), queue_seconds=50.0, metrics=metrics.for_model("fake-ranker", "7", 3))
    for stage in range(3):
        running.engine.speeds.observe(stage, 10**6, 10.0)
    with busy(backend, running.ask, ["a" * 10], received=100.0) as first:
        for deadline in (None, 1e9):
            with pytest.raises(ServiceError) as refused:
                running.ask(["b"], received=49.0, deadline=deadline)
            assert refused.value.kind is Kind.UNAVAILABLE
            refusal = refused.value.refusal
            assert (refusal.reason, refusal.candidates) == ("queue", 1)
            assert refusal.seconds is not None
            assert refusal.seconds > 51.0
        accepted = running.ask(["b"], received=100.0)
        tokens = [running.encoder.encode("how?", [Candidate(text=text)]).tokens for text in ("b", "a" * 10)]
        small, large = (running.engine.speeds.shared((each, each, each)) for each in tokens)
    assert ranked(first).complete
    assert ranked(accepted).complete
    offered = [metrics[OFFERED_SECONDS].labels(each) for each in ("accepted", "refused")]
    values = [next(iter(each.collect())).samples[0].value for each in offered]
    assert values == pytest.approx([small + large, 2 * small])


def test_a_small_question_of_low_priority_lets_an_equal_one_go_first(start: Start) -> None:
    """Though it came first."""
    backend = FakeBackend()
    running = start(backend, step_tokens=128)
    with busy(backend, running.ask, ["a"]) as first:
        answers: list[str] = []
        low, high = running.ask(["abcdefg"] * 20, priority=500), running.ask(["abcdefg"] * 20)
        low.add_done_callback(lambda _: answers.append("low"))
        high.add_done_callback(lambda _: answers.append("high"))
    for future in (first, low, high):
        ranked(future)
    wait_until(lambda: len(answers) == 2)
    assert answers == ["high", "low"]


def test_times_add_up(encoder: PairEncoder) -> None:
    """Queue ends when the first step begins, compute when the answer is there."""
    backend = SlowBackend()
    backend.clock = Clock(97.0)
    counts = Metrics().for_model("fake-ranker", "7", 3)
    engine = Engine(backend, step_tokens=10_000, metrics=counts, clock=backend.clock)
    future = Running(engine, encoder).ask(["a"])
    backend.clock.now = 100.0
    engine.start()
    got = ranked(future)
    engine.stop(0.0)
    engine.join(20.0)
    assert (got.queue_seconds, got.compute_seconds) == (3.0, 3.0)


def _stage_scores(pairs: EncodedPairs, stage: int) -> Any:
    backend = FakeBackend()
    state = backend.start(pairs)
    for number in range(stage):
        following = backend.run(state, number).state
        assert following is not None
        state = following
    return backend.run(state, stage).scores


def test_a_question_that_yields_to_live_traffic_runs_in_short_steps_and_gets_the_same_answer(
    start: Start, encoder: PairEncoder
) -> None:
    """It polls the live traffic before each step; the time it waits does not count as compute."""
    looks: list[int] = []
    clock = Clock()

    def busy() -> bool:
        looks.append(1)
        clock.now += 0.5
        return len(looks) % 2 == 1

    pairs = encoder.encode("how?", [Candidate(text="a b c d " * 8)] * 60)
    policy = RatioSchedule((0.3, 0.3))
    alone, backend = rank_pairs(FakeBackend(), pairs, policy), SlowBackend()
    backend.clock = clock
    running = start(backend, clock=clock)
    got = ranked(running.submit(pairs, policy=policy, live_traffic=LiveTraffic(busy)))
    np.testing.assert_array_equal(got.order, alone.order)
    np.testing.assert_array_equal(got.scores, alone.scores)
    assert max(rows for _, rows in backend.runs) < 60
    assert len(looks) == 2 * len(backend.runs)
    assert got.compute_seconds == len(backend.runs)


def test_the_thread_is_prepared_before_the_first_question(start: Start) -> None:
    """In the engine's own thread, for which libraries make handles."""
    names: list[str] = []
    running = start(FakeBackend(), prepare_thread=lambda: names.append(threading.current_thread().name))
    ranked(running.ask(["abc"]))
    assert names == ["engine"]


@pytest.mark.parametrize(
    ("message", "answers"), [("CUDA out of memory", True), ("CUDA error: device-side assert triggered", False)]
)
def test_a_thread_that_cannot_be_prepared_answers_unless_the_device_failed(
    start: Start, caplog: pytest.LogCaptureFixture, message: str, answers: bool
) -> None:
    """Memory that is short for a moment costs the first question some milliseconds, and not the version."""

    def fail() -> None:
        raise RuntimeError(message)

    running = start(FakeBackend(), prepare_thread=fail)
    if answers:
        ranked(running.ask(["abc"]))
        assert f"the engine's thread was not prepared: {message}" in caplog.text
    else:
        running.engine.join(20.0)
    assert (running.engine.alive, running.engine.device_failed) == (answers, not answers)
