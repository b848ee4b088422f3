"""Jobs of a question whose first stage reads texts: its vectors are one job, its pairs the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.service.asking import Clock, error, held, ranked
from tests.service.conftest import Start
from tests.service.fakes import FakeBackend, Faults
from tests.service.first_stages import with_first_stage

from cerberank_models.drop import RatioSchedule
from cerberank_models.encoding import Candidate
from cerberank_models.rank_pairs import rank_pairs
from cerberank_service.errors import Kind

TEXTS = ["ab", "abcdef", "a", "abcd"]
VECTORS: dict[str, Any] = {"policy": RatioSchedule(()), "later_tokens": (20.0, 10.0, 5.0), "leads": True}
PAIRS: dict[str, Any] = {"policy": RatioSchedule((0.0, 0.0)), "begins_at": 1, "follows": 0, "ordered": True}


def launch(start: Start, first: Faults | None = None, pairs: Faults | None = None, **options: Any) -> Any:
    """An engine with its fake first stage and its fake pairs."""
    backend, vectors, fake = with_first_stage(first=first, pairs=pairs)
    return start(backend, **options), vectors, fake


def test_a_vectors_job_gives_every_vector(start: Start) -> None:
    """It runs stage 0 alone and carries one vector a text; the pairs' stages run nothing."""
    running, vectors, pairs = launch(start)
    outcome = ranked(running.ask(TEXTS, **VECTORS))
    wanted = vectors.encode(running.encoder.encode("how?", [Candidate(text=text) for text in TEXTS]))
    assert outcome.complete
    assert outcome.vectors is not None
    assert all(np.array_equal(got, want) for got, want in zip(outcome.vectors, wanted, strict=True))
    assert pairs.runs == []


def test_a_pairs_job_runs_the_stages_after_the_first(start: Start) -> None:
    """It gives the scores of the pairs' own stages, counted from 0, and encodes no text."""
    running, vectors, fake = launch(start)
    outcome = ranked(running.ask(TEXTS, **PAIRS))
    encoded = running.encoder.encode("how?", [Candidate(text=text) for text in TEXTS])
    wanted = rank_pairs(FakeBackend(), encoded, RatioSchedule((0.0, 0.0)))
    assert outcome.order.tolist() == wanted.order.tolist()
    assert np.array_equal(outcome.scores, wanted.scores)
    assert outcome.stages.tolist() == [2] * len(TEXTS)
    assert vectors.encoded == []
    assert [stage for stage, _ in fake.runs] == [0, 1, 2]


def test_evicted_states_run_again_from_the_jobs_first_stage(start: Start) -> None:
    """Without memory for states every stage begins anew with the pairs' stage 0, never with texts."""
    running, vectors, fake = launch(start, state_bytes=0)
    outcome = ranked(running.ask(TEXTS, **PAIRS))
    assert outcome.complete
    assert [stage for stage, _ in fake.runs] == [0, 0, 1, 0, 1, 2]
    assert vectors.encoded == []


def test_a_step_of_texts_that_does_not_fit_is_halved(start: Start) -> None:
    """Too little memory in stage 0 cuts the rows; every vector comes all the same."""
    running, vectors, _ = launch(start, first=Faults(memory_tokens=30))
    outcome = ranked(running.ask(TEXTS * 3, **VECTORS))
    assert outcome.vectors is not None
    assert all(vector is not None for vector in outcome.vectors)
    assert len(vectors.encoded) > 1


def test_the_question_leads_and_a_deadline_keeps_the_vectors_so_far(start: Start) -> None:
    """The first row runs in the first step though others are longer; the rest is None when the deadline passes."""
    clock = Clock()
    running, vectors, _ = launch(start, step_tokens=20, clock=clock)
    encode = vectors.encode

    def slow(texts: Any) -> Any:
        clock.now += 1.0
        return encode(texts)

    vectors.encode = slow
    outcome = ranked(running.ask(["a", "abcdef", "abcdefg", "abcdefgh"], deadline=clock.now + 0.5, **VECTORS))
    assert not outcome.complete
    assert outcome.vectors is not None
    known = [vector is not None for vector in outcome.vectors]
    assert known[0]
    assert not all(known)
    assert (outcome.stages == -1).tolist() == [not each for each in known]


def test_a_continued_question_is_never_refused(start: Start) -> None:
    """Backlog, queue and deadline refuse a new question, and take the next job of an accepted one."""
    clock = Clock()
    running, vectors, _ = launch(start, most_tokens=1, queue_seconds=1e-9, clock=clock)
    late = clock.now - 1.0
    with held(vectors):
        blocker = running.ask(TEXTS * 20, **VECTORS)
        with pytest.raises(Exception, match="too much work"):
            running.ask(TEXTS, **PAIRS | {"follows": None})
        continued = running.ask(TEXTS, **PAIRS, deadline=late)
    assert ranked(blocker).complete
    outcome = ranked(continued)
    assert not outcome.complete
    assert outcome.stages.tolist() == [-1] * len(TEXTS)


def test_the_room_of_the_next_job_is_kept_until_it_comes_or_is_cancelled(start: Start) -> None:
    """A vectors job counts with the pairs' expected tokens, also after it is done; a cancelled one leaves nothing."""
    running, vectors, _ = launch(start)
    texts = running.encoder.encode("how?", [Candidate(text=text) for text in TEXTS])
    assert ranked(running.ask(TEXTS, **VECTORS)).complete
    assert running.engine.queued_tokens == texts.tokens + 20
    assert ranked(running.ask(TEXTS, **PAIRS)).complete
    assert running.engine.queued_tokens == 0
    assert ranked(running.ask(TEXTS, **VECTORS)).complete
    running.engine.cancel(2)
    running.engine.cancel(2)
    assert running.engine.queued_tokens == 0
    with held(vectors):
        ticket = running.ticket(texts, **VECTORS)
        running.engine.cancel(ticket.key)
    assert error(ticket.outcome).kind is Kind.UNAVAILABLE
    assert running.engine.queued_tokens == 0


def test_admission_sees_the_whole_question_and_the_scheduler_its_own_part(start: Start) -> None:
    """A vectors job's predicted seconds hold the stages that its next job will run."""
    running, vectors, _ = launch(start)
    with held(vectors):
        running.ask(TEXTS, **VECTORS | {"later_tokens": (0.0, 0.0, 0.0)})
        alone = running.engine.queued_seconds
        running.ask(TEXTS, **VECTORS | {"later_tokens": (1e6, 1e6, 1e6)})
        speeds = running.engine.speeds
        assert running.engine.queued_seconds - 2 * alone == pytest.approx(speeds.shared((0.0, 1e6, 1e6, 1e6)))


def test_stage_0_is_learnt_like_any_other(start: Start) -> None:
    """Its measured speed replaces the guess, and no other stage's does."""
    running, _, _ = launch(start)
    before = list(running.engine.speeds.seconds_per_token)
    assert ranked(running.ask(TEXTS, **VECTORS)).complete
    after = running.engine.speeds.seconds_per_token
    assert after[1:] == pytest.approx(before[1:], rel=1e-9)  # one batch is fitted to its own seconds but for rounding
    assert after[0] != pytest.approx(before[0], rel=1e-9)
