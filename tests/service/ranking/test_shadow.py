"""Mirrored questions, in an app that follows a store."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from tests.service.asking import busy
from tests.service.fakes import FakeBackend, FakeState
from tests.service.first_stages import ENCODER, FakeVectors, config_with_first_stage, loaded_with_first_stage, store_of
from tests.service.following import Follow, entry, served_by
from tests.service.observe import samples, service_of, wait_until
from tests.service.pushes import open_fake, push

from cerberank_models.backends.stage_contract import StageOutput
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_models.config import ArchitectureConfig, RankerConfig
from cerberank_models.encoding import Candidate
from cerberank_models.rank_pairs import rank_pairs
from cerberank_models.ranking.call import RankCall
from cerberank_service.engine.work import Ranked
from cerberank_service.ranking.pipeline import Question
from cerberank_service.ranking.shadow import Comparison, ShadowFigures, compare, rank_biased_overlap
from cerberank_service.settings import Settings
from cerberank_service.versions.loading import Loaded

QUESTIONS = [(f"how {number}?", [f"{number} {word}" for word in ("a", "b", "c", "d")]) for number in range(12)]
SHADOW = "/v1/models/fake-ranker/shadow"
Make = Callable[..., Checkpoint]


class Other(FakeBackend):
    """Scores that have nothing to do with the fake's, but for golden questions, which are without drops and thrice."""

    def run(self, state: FakeState, stage: int) -> StageOutput[FakeState]:
        output = super().run(state, stage)
        if len(state.pairs) == 4:
            output.scores[:] = (output.scores * 7.0) % 1.0
        return output


def other_for_version_2(checkpoint: Checkpoint, settings: Settings) -> Loaded:
    loaded = open_fake(checkpoint, settings)
    if loaded.checkpoint.manifest.version == "2":
        return Loaded(loaded.checkpoint, Other(loaded.checkpoint.config))
    return loaded


@pytest.fixture
def mirrored(follow: Follow, store: FolderStore, made: Make) -> TestClient:
    """Version 1 is stable, version 2 its shadow and another model."""
    push(store, made("1"), "stable")
    push(store, made("2"), "shadow")
    client = follow(other_for_version_2, shadow_percent=100)
    wait_until(lambda: entry(client, "2").get("labels") == ["shadow"])
    return client


def ask_all(client: TestClient) -> None:
    """One after the other, so that each finds the service idle."""
    for number, (question, texts) in enumerate(QUESTIONS, 1):
        assert served_by(client, question=question, candidates=texts) == "1"
        wait_until(lambda number=number: client.get(SHADOW).json()["questions"] + skipped(client) == number)


def skipped(client: TestClient) -> int:
    return int(client.get(SHADOW).json()["skipped"])


def test_the_figures_are_those_of_an_offline_comparison(mirrored: TestClient, made: Make) -> None:
    """The figures equal a comparison of both checkpoints on the same questions."""
    ask_all(mirrored)
    figures = mirrored.get(SHADOW).json()
    assert figures["skipped"] == 0
    encoder, compared = made("9").encoder(), []
    for question, texts in QUESTIONS:
        pairs = encoder.encode(question, [Candidate(text=text) for text in texts])
        first, second = rank_pairs(FakeBackend(), pairs), rank_pairs(Other(), pairs)
        compared.append(compare(first.order, first.scores, second.order, second.scores))
    assert figures["flips"] == sum(each.flipped for each in compared)
    assert 0 < figures["flips"] < len(QUESTIONS)
    assert figures["rank_biased_overlap"] == pytest.approx(np.mean([each.overlap for each in compared]))
    assert figures["score_shift"] == pytest.approx(np.mean([each.shift for each in compared]))
    assert figures["failures"] == 0
    counted = samples(mirrored)
    assert counted["cerberank_shadow_questions_total{model=fake-ranker,version=2}"] == len(QUESTIONS)
    assert counted["cerberank_shadow_flips_total{model=fake-ranker,version=2}"] == figures["flips"]


def test_the_shadow_reads_long_texts_as_the_stable_version_did(follow: Follow, store: FolderStore, made: Make) -> None:
    """Two equal versions give one ranking, of candidates and not of windows."""
    push(store, made("1"), "stable")
    push(store, made("2"), "shadow")
    client = follow(shadow_percent=100)
    wait_until(lambda: entry(client, "2").get("labels") == ["shadow"])
    served_by(client, candidates=["a b " * 60, "c", "d e " * 50, "f"], windows="best", drop_ratio=0.3)
    wait_until(lambda: client.get(SHADOW).json()["questions"] == 1)
    figures = client.get(SHADOW).json()
    assert (figures["flips"], figures["score_shift"]) == (0, 0.0)
    assert figures["rank_biased_overlap"] == pytest.approx(1.0)


def test_without_a_shadow_there_is_nothing_to_tell(follow: Follow, store: FolderStore, made: Make) -> None:
    """404, also for a model that is not known."""
    push(store, made("1"), "stable", "shadow")
    client = follow()
    wait_until(lambda: client.get("/health/ready").status_code == 200)
    assert client.get(SHADOW).status_code == 404
    assert client.get("/v1/models/other/shadow").status_code == 404


def with_backends(follow: Follow, store: FolderStore, made: Make) -> tuple[TestClient, dict[str, FakeBackend]]:
    """A client of a service whose shadow gets all questions, and its fake backends by version."""
    backends: dict[str, FakeBackend] = {}

    def load(checkpoint: Checkpoint, settings: Settings) -> Loaded:
        loaded = open_fake(checkpoint, settings)
        backends[loaded.checkpoint.manifest.version] = loaded.backend  # type: ignore[assignment]
        return loaded

    push(store, made("1"), "stable")
    push(store, made("2"), "shadow")
    client = follow(load, shadow_percent=100)
    wait_until(lambda: entry(client, "2").get("labels") == ["shadow"])
    return client, backends


def test_a_busy_service_mirrors_nothing(follow: Follow, store: FolderStore, made: Make) -> None:
    """Questions that overlap are answered, and skipped by the shadow."""
    client, backends = with_backends(follow, store, made)
    shadow = service_of(client).shadow
    served_by(client)
    wait_until(lambda: client.get(SHADOW).json()["questions"] == 1)
    stable = service_of(client).versions.find("fake-ranker@1", None)
    with ThreadPoolExecutor(1) as pool:
        with busy(backends["1"], pool.submit, served_by, client) as waiting:
            call = RankCall(question="how?", candidates=(Candidate(text="a"),))
            shadow.offer(Question.read(call, stable, received=0.0), complete=True)
            assert skipped(client) == 1
        assert waiting.result(20) == "1"


def test_a_question_that_waits_holds_no_tokens(follow: Follow, store: FolderStore, made: Make) -> None:
    """The queue takes no memory for pairs, which a comparison does not need."""
    client, backends = with_backends(follow, store, made)
    service = service_of(client)
    call = RankCall(question="how?", candidates=(Candidate(text="a"),))
    one = np.zeros(1, np.int64)
    ranked = Ranked(
        order=one, scores=np.ones(1), stages=one, heads=None, complete=True, queue_seconds=0.0, compute_seconds=0.0
    )
    with busy(backends["2"], served_by, client):
        stable = service.versions.find("fake-ranker@1", None)
        question = replace(Question.read(call, stable, received=0.0), ranked=ranked)
        tokens = weakref.ref(question.prepared.pairs.token_ids)
        service.shadow.offer(question, complete=True)
        del question
        assert tokens() is None
    wait_until(lambda: client.get(SHADOW).json()["questions"] == 2)


PAIR_OF_ORDERS = st.integers(1, 30).flatmap(lambda n: st.tuples(st.permutations(range(n)), st.permutations(range(n))))


def plain_overlap(first: list[int], second: list[int], p: float) -> float:
    """The definition, with sets."""
    n = len(first)
    agreement = [len(set(first[:d]) & set(second[:d])) / d for d in range(1, n + 1)]
    return agreement[-1] * p**n + (1 - p) / p * sum(a * p**d for d, a in enumerate(agreement, 1))


@given(orders=PAIR_OF_ORDERS, persistence=st.floats(0.1, 0.99))
def test_rank_biased_overlap_is_what_its_definition_says(
    orders: tuple[list[int], list[int]], persistence: float
) -> None:
    """Against sets; symmetric, within 0..1, and 1 for the same order."""
    first, second = map(np.asarray, orders)
    overlap = rank_biased_overlap(first, second, persistence=persistence)
    assert overlap == pytest.approx(plain_overlap(*orders, persistence))
    assert overlap == pytest.approx(rank_biased_overlap(second, first, persistence=persistence))
    assert 0.0 <= overlap <= 1.0
    assert rank_biased_overlap(first, first, persistence=persistence) == pytest.approx(1.0)


def test_a_change_at_the_top_weighs_more_than_one_below() -> None:
    """The measure exists for this difference."""
    order = np.arange(20)
    top, below = order.copy(), order.copy()
    top[:2], below[-2:] = [1, 0], [19, 18]
    assert rank_biased_overlap(order, top) < rank_biased_overlap(order, below) < 1.0


def test_flip_and_shift() -> None:
    """Another first candidate is a flip; the shift is the mean absolute difference where both have a score."""
    scores, other = np.asarray([0.9, 0.5, 0.1]), np.asarray([0.5, 0.9, 0.1])
    same = compare(np.asarray([0, 1, 2]), scores, np.asarray([0, 2, 1]), other)
    assert not same.flipped
    assert same.shift == pytest.approx(0.8 / 3)
    assert compare(np.asarray([0, 1, 2]), scores, np.asarray([1, 0, 2]), other).flipped
    dropped = np.asarray([0.5, 0.9, np.nan])
    assert compare(np.asarray([0, 1, 2]), scores, np.asarray([0, 2, 1]), dropped).shift == pytest.approx(0.4)
    assert compare(np.asarray([0, 1, 2]), scores, np.asarray([0, 2, 1]), np.full(3, np.nan)).shift == 0.0


def test_the_figures_are_described_by_means() -> None:
    """Null before the first question."""
    figures = ShadowFigures("1", "2")
    assert figures.describe()["latency_ratio"] is None
    for number in range(4):
        compared = Comparison(flipped=number == 0, overlap=0.5, shift=0.1)
        figures.add(compared, stable_seconds=1.0, shadow_seconds=2.0)
    described = figures.describe()
    assert (described["stable"], described["shadow"], described["questions"], described["flips"]) == ("1", "2", 4, 1)
    assert (described["flip_percent"], described["rank_biased_overlap"], described["latency_ratio"]) == (25.0, 0.5, 2.0)
    assert described["score_shift"] == pytest.approx(0.1)


BODY: dict[str, Any] = {"question": "how tall?", "candidates": ["a", "bb", "ccc", "dddd"]}


class Loading:
    """Version 2 has a first stage, which remembers what it encoded."""

    def __init__(self, config: RankerConfig) -> None:
        assert config.first_stage is not None
        self.config, self.vectors = config, FakeVectors(config.first_stage)
        self.pairs = FakeBackend(config)

    def __call__(self, checkpoint: Checkpoint, settings: Settings) -> Loaded:
        loaded = open_fake(checkpoint, settings)
        if loaded.checkpoint.manifest.version != "2":
            return loaded
        return loaded_with_first_stage(loaded.checkpoint, self.vectors, self.pairs)


@pytest.fixture
def loading(store: FolderStore, made: Callable[..., Checkpoint]) -> Loading:
    push(store, made("1"), "stable")
    push(store, made("2"), "shadow")
    return Loading(config_with_first_stage((0.5, 0.0, 0.0)))


def test_the_shadow_takes_both_steps(follow: Follow, loading: Loading) -> None:
    """A mirrored question is encoded as texts, half of it is dropped, and the rest runs as pairs."""
    client = follow(loading, shadow_percent=100)
    wait_until(lambda: entry(client, "2").get("labels") == ["shadow"])
    loading.vectors.encoded.clear()
    loading.pairs.runs.clear()
    assert served_by(client, **BODY) == "1"
    wait_until(lambda: client.get(SHADOW).json()["questions"] == 1)
    assert client.get(SHADOW).json()["failures"] == 0
    assert sum(loading.vectors.encoded) == len(BODY["candidates"]) + 1
    assert sum(rows for stage, rows in loading.pairs.runs if stage == 0) == 2


@pytest.mark.usefixtures("loading")
def test_a_shadow_that_reads_no_pairs_is_compared(follow: Follow) -> None:
    """Its vectors are its whole ranking."""
    alone = ArchitectureConfig(body_layers=1, heads=0, head_layers=0)
    vectors_only = Loading(config_with_first_stage().model_copy(update={"exits": (), "architecture": alone}))
    client = follow(vectors_only, shadow_percent=100)
    wait_until(lambda: entry(client, "2").get("labels") == ["shadow"])
    assert served_by(client, **BODY) == "1"
    wait_until(lambda: client.get(SHADOW).json()["questions"] == 1)
    figures = client.get(SHADOW).json()
    assert figures["failures"] == 0
    assert figures["latency_ratio"] > 0


def test_a_version_without_a_first_stage_is_served_beside_vectors(
    follow: Follow, loading: Loading, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Out of a store it serves, and the log warns once that the settings' vectors are of no use to it."""
    client = follow(loading, vectors=store_of(tmp_path / "vectors", loading.vectors, ["a"], encoder=ENCODER))
    wait_until(lambda: entry(client, "2").get("labels") == ["shadow"])
    assert served_by(client, **BODY) == "1"
    figures = [each.getMessage() for each in caplog.records if "no first stage" in each.getMessage()]
    assert len(figures) == 1


def test_a_list_of_ratios_that_does_not_fit_the_shadow_is_skipped(follow: Follow, loading: Loading) -> None:
    """Stable and shadow differ in their stages: the question is not a failure of the shadow, and is told."""
    client = follow(loading, shadow_percent=100)
    wait_until(lambda: entry(client, "2").get("labels") == ["shadow"])
    assert served_by(client, **BODY, drop_ratio=[0.0, 0.0]) == "1"
    wait_until(lambda: client.get(SHADOW).json()["skipped"] == 1)
    figures = client.get(SHADOW).json()
    assert (figures["questions"], figures["failures"]) == (0, 0)


def test_a_version_of_another_encoder_is_served_without_the_vectors(
    follow: Follow, loading: Loading, tmp_path: Path
) -> None:
    """It becomes ready, computes every vector, and `/v1/models` names both encoders."""
    client = follow(loading, vectors=store_of(tmp_path / "vectors", loading.vectors, ["a"], encoder="f" * 64))
    wait_until(lambda: entry(client, "2").get("labels") == ["shadow"])
    figures = entry(client, "2")["first_stage"]
    assert figures["vectors"] == 0
    assert ENCODER in figures["without_vectors"]
    assert "f" * 64 in figures["without_vectors"]
    assert str(tmp_path) not in figures["without_vectors"]
    loading.vectors.encoded.clear()
    assert served_by(client, **BODY, model="fake-ranker@2") == "2"
    assert sum(loading.vectors.encoded) == len(BODY["candidates"]) + 1
