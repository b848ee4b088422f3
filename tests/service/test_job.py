from __future__ import annotations

import numpy as np
import pytest
from tests.service.fakes import FakeBackend

from cerberank_models.encoding import EncodedPairs
from cerberank_service.job import Job, Outcome, split


def pairs(count: int) -> EncodedPairs:
    """Pair i is i + 2 tokens long and made of the token i + 10."""
    lengths = np.arange(count) + 2
    ids = np.repeat(np.arange(count) + 10, lengths).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return EncodedPairs(
        token_ids=ids, type_ids=np.zeros_like(ids), offsets=offsets, truncated=np.zeros(count, dtype=np.bool_)
    )


def job(count: int, schedule: tuple[float, ...] = (0.5, 0.0), minimum: int = 1) -> Job:
    def never(outcome: Outcome) -> None:
        raise AssertionError("only the engine answers")

    return Job(pairs=pairs(count), schedule=schedule, minimum=minimum, submitted=0.0, deadline=None, resolve=never)


def run_stage(job: Job, backend: FakeBackend, chunks: list[list[int]], *, last: bool = False) -> int:
    for rows in chunks:
        chunk = np.asarray(rows)
        job.record(chunk, backend.run(job.state_of(backend, chunk), job.stage))
    return job.finish_stage(last)


def test_states_come_back_in_the_order_asked_for_whatever_the_chunks_were() -> None:
    """Row i's state is row i's, also when the next stage is cut differently."""
    backend, question = FakeBackend(), job(6, schedule=(0.0, 0.0))
    assert run_stage(question, backend, [[5, 4], [3, 0, 1], [2]]) == 0
    asked = np.asarray([1, 5, 2, 3])
    got = question.state_of(backend, asked)
    assert got.pairs.token_ids.tolist() == pairs(6).select(asked).token_ids.tolist()
    assert got.stage == 1


def test_only_survivors_go_on_and_the_dropped_keep_their_scores() -> None:
    """Half of six go after the first exit; they rank below every survivor."""
    backend, question = FakeBackend(), job(6)
    assert run_stage(question, backend, [[5, 4, 3, 2, 1, 0]]) == 3
    first = question.scores.copy()
    kept = question.alive.tolist()
    assert sorted(first[kept]) == sorted(first)[3:]
    run_stage(question, backend, [kept])
    run_stage(question, backend, [kept], last=True)
    result = question.ranked(now=1.0, complete=True)
    dropped = [row for row in range(6) if row not in kept]
    assert result.scores[dropped].tolist() == first[dropped].tolist()
    assert result.stages.tolist() == [2 if row in kept else 0 for row in range(6)]
    assert set(result.order[:3].tolist()) == set(kept)
    assert result.heads is not None
    assert np.isnan(result.heads[dropped]).all()
    assert not np.isnan(result.heads[kept]).any()


def test_a_drop_leaves_as_many_as_were_asked_for() -> None:
    """`top_k` results come from the last stage."""
    question = job(6, schedule=(0.9, 0.0), minimum=4)
    assert run_stage(question, FakeBackend(), [list(range(6))]) == 2
    assert len(question.alive) == 4


def test_there_is_no_order_before_the_first_stage() -> None:
    """Half a stage is no answer."""
    backend, question = FakeBackend(), job(4)
    question.record(np.asarray([0, 1]), backend.run(question.state_of(backend, np.asarray([0, 1])), 0))
    assert not question.stage_complete
    assert np.isnan(question.scores).all()
    run_stage(question, backend, [[2, 3]])
    assert question.stage_complete


@pytest.mark.parametrize("sizes", [[5], [2, 3], [1, 1, 3]])
def test_a_joint_output_is_cut_by_question(sizes: list[int]) -> None:
    """Scores, heads and states go to their own question."""
    backend = FakeBackend()
    state = backend.start(pairs(5))
    output = backend.run(state, 0)
    parts = split(output, sizes, backend)
    assert np.concatenate([part.scores for part in parts]).tolist() == output.scores.tolist()
    states = [part.state for part in parts]
    assert [len(part.pairs) for part in states if part is not None] == sizes
    joined = backend.concat([part for part in states if part is not None])
    assert joined.pairs.token_ids.tolist() == state.pairs.token_ids.tolist()
