"""The tokens of a step, chosen by measured rates on a device whose speed this test sets."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.asking import Clock
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend, FakeState, ranker_config
from tests.service.observe import engine_of, samples

from cerberank_models.backends.device_memory import DeviceMemory
from cerberank_models.backends.stage_contract import StageOutput
from cerberank_models.encoding import PairEncoder
from cerberank_models.rank_pairs import NonFiniteScoreError
from cerberank_models.tokens import largest_token_id
from cerberank_service.engine.cost import StageSpeeds
from cerberank_service.versions.warm_up import (
    ENOUGH,
    LONGEST_STEP_SECONDS,
    PROCESSOR_TOKENS,
    SIZES,
    choose_step_tokens,
    run_pair,
    warm_up,
)

GPU = DeviceMemory(total=2**37, free=2**36)


@dataclass
class Gpu(FakeBackend):
    """A run takes `launch` seconds and a time for each token; the first run of a shape takes a second more."""

    device_memory: DeviceMemory | None = GPU
    clock: Clock = field(default_factory=Clock)
    launch: float = 1e-3
    per_token: float = 1e-6
    fits: float = inf
    seen: list[int] = field(default_factory=list)
    """Tokens of every run of stage 0 that was tried."""

    def run(self, state: FakeState, stage: int) -> StageOutput[FakeState]:
        tokens = state.pairs.tokens
        self.clock.now += self.launch + self.per_token * tokens + (0.0 if tokens in self.seen or stage else 1.0)
        if stage == 0:
            self.seen.append(tokens)
        if tokens > self.fits:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        last = stage == len(self.config.stages) - 1
        few = FakeState(state.pairs.select(np.arange(min(64, len(state.pairs)))), stage)  # a full step's do not matter
        output = super().run(few, stage)
        after = None if last else FakeState(state.pairs, stage + 1)
        return StageOutput(state=after, scores=output.scores, head_scores=output.head_scores)


class Reads(FakeBackend):
    """Keeps the token ids of every run, and gives NaN if told so."""

    def __init__(self, *, nan: bool = False) -> None:
        super().__init__()
        self.nan, self.seen = nan, list[list[int]]()

    def run(self, state: FakeState, stage: int) -> StageOutput[FakeState]:
        self.seen.append(state.pairs.token_ids.tolist())
        output = super().run(state, stage)
        output.scores[:] = np.nan if self.nan else output.scores
        return output


def test_a_pair_of_full_length_with_the_largest_token_id_runs_through_every_stage(encoder: PairEncoder) -> None:
    """So a network with fewer positions or embeddings than config.json says is found before a client finds it."""
    backend = Reads()
    run_pair(backend, encoder)
    assert [len(ids) for ids in backend.seen] == [backend.config.encoding.max_length] * 3
    assert all(largest_token_id(encoder.tokenizer) in ids for ids in backend.seen)
    run_pair(backend, encoder, most_tokens=8)
    assert 8 < len(backend.seen[-1]) < len(backend.seen[0])
    with pytest.raises(NonFiniteScoreError, match="no finite score"):
        run_pair(Reads(nan=True), encoder)


def warmed(gpu: Gpu, encoder: PairEncoder, step_tokens: int = 0) -> StageSpeeds:
    return warm_up(gpu, encoder, step_tokens=step_tokens, clock=gpu.clock)


@given(st.dictionaries(st.sampled_from(SIZES), st.floats(1.0, 1e7), min_size=1))
def test_the_smallest_size_that_is_nearly_the_fastest_is_chosen(rates: dict[int, float]) -> None:
    """No smaller size is as near to the best rate, and the chosen one is."""
    chosen = choose_step_tokens(rates)
    assert rates[chosen] >= ENOUGH * max(rates.values())
    assert all(rates[size] < ENOUGH * max(rates.values()) for size in rates if size < chosen)


@pytest.mark.parametrize(
    ("launch", "chosen"),
    [(0.0, 2048), (1e-4, 2048), (1e-3, 16_384), (1e-2, 65_536)],
)
def test_a_gpu_gets_steps_that_keep_it_busy(encoder: PairEncoder, launch: float, chosen: int) -> None:
    """The longer a launch takes beside the tokens, the larger the step; both parts of its cost are known afterwards."""
    gpu = Gpu(launch=launch)
    speeds = warmed(gpu, encoder)
    assert speeds.step_tokens == chosen
    assert gpu.prepared == [chosen]
    assert speeds.fixed_seconds == pytest.approx([launch] * 3, rel=0.01, abs=1e-6)
    assert speeds.seconds_per_token == pytest.approx([1e-6] * 3, rel=0.01)


def test_a_full_step_has_run_before_a_version_is_ready(encoder: PairEncoder) -> None:
    """Every size that was tried ran through all stages, its first run not counted."""
    gpu = Gpu()
    warmed(gpu, encoder)
    for size in SIZES[:6]:
        assert sum(0.9 * size < tokens <= size for tokens in gpu.seen) == 2


def test_the_search_ends_where_steps_become_long(encoder: PairEncoder) -> None:
    """Small questions would wait for them; the first size that is too long still counts."""
    gpu = Gpu(launch=0.08, per_token=5e-6)
    assert LONGEST_STEP_SECONDS < 0.08 + 4096 * 5e-6
    assert warmed(gpu, encoder).step_tokens == 4096
    assert max(gpu.seen) <= 4096


def test_the_search_ends_where_memory_does(encoder: PairEncoder) -> None:
    """The sizes that fit are compared, and the memory of the failed attempt is given back."""
    gpu = Gpu(launch=1.0e-2, per_token=1e-6, fits=10_000)
    assert warmed(gpu, encoder).step_tokens == 8192
    assert gpu.freed == 1


def test_a_device_that_is_too_small_for_any_step_is_refused(encoder: PairEncoder) -> None:
    """The version is rejected as too big, rather than loaded to fail on every question."""
    with pytest.raises(MemoryError, match="2048 tokens"):
        warmed(Gpu(fits=1500), encoder)


@pytest.mark.parametrize("fits", [inf, 3000])
def test_a_size_that_was_set_is_taken_and_warmed_up(encoder: PairEncoder, fits: float) -> None:
    """Even one that does not fit: the engine halves it when it must."""
    gpu = Gpu(fits=fits)
    assert warmed(gpu, encoder, step_tokens=5000).step_tokens == 5000
    assert max(gpu.seen) == pytest.approx(5000, rel=0.05)
    assert gpu.prepared == [5000]


@pytest.mark.parametrize(
    ("wanted", "per_token", "taken"),
    [(0, 1e-6, PROCESSOR_TOKENS[1]), (0, 5e-5, 1980), (0, 1e-2, PROCESSOR_TOKENS[0]), (500, 1e-2, 500)],
)
def test_a_step_on_a_processor_takes_a_tenth_of_a_second(
    encoder: PairEncoder, wanted: int, per_token: float, taken: int
) -> None:
    """By the speed of the short warm-up: no full step runs. Within limits, and unless a size is set."""
    processor = Gpu(device_memory=None, per_token=per_token)
    assert warmed(processor, encoder, step_tokens=wanted).step_tokens == pytest.approx(taken, abs=2)
    assert max(processor.seen) < 2048


def test_the_served_engine_takes_the_chosen_size(serve: Serve) -> None:
    """The metrics and `/info` tell it."""
    client = serve(Gpu(ranker_config()))
    engine = engine_of(client)
    assert engine.step_tokens in SIZES
    assert engine.speeds.step_tokens == engine.step_tokens
    assert client.get("/info").json()["max_batch_tokens"] == engine.step_tokens
    client.post("/v1/rank", json={"question": "q", "candidates": ["a"]}).raise_for_status()
    assert samples(client)["cerberank_step_tokens{}"] == engine.step_tokens
