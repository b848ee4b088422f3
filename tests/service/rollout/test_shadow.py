"""Mirrored questions, in an app that follows a store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.service.asking import held
from tests.service.fakes import FakeBackend, FakeState
from tests.service.following import Follow, entry, served_by
from tests.service.observe import samples, service_of, wait_until
from tests.service.pushes import open_fake, push

from cerberank_models.backends.contract import StageOutput
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.store.folder import FolderStore
from cerberank_models.encoding import Candidate
from cerberank_models.rank import rank_pairs
from cerberank_service.rollout.comparison import compare
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


def other_for_version_2(settings: Settings) -> Loaded:
    loaded = open_fake(settings)
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
    told = mirrored.get(SHADOW).json()
    assert told["skipped"] == 0
    encoder, compared = made("9").encoder(), []
    for question, texts in QUESTIONS:
        pairs = encoder.encode(question, [Candidate(text=text) for text in texts])
        first, second = rank_pairs(FakeBackend(), pairs), rank_pairs(Other(), pairs)
        compared.append(compare(first.order, first.scores, second.order, second.scores))
    assert told["flips"] == sum(each.flipped for each in compared)
    assert 0 < told["flips"] < len(QUESTIONS)
    assert told["rank_biased_overlap"] == pytest.approx(np.mean([each.overlap for each in compared]))
    assert told["score_shift"] == pytest.approx(np.mean([each.shift for each in compared]))
    assert told["failures"] == 0
    counted = samples(mirrored)
    assert counted["cerberank_shadow_questions_total{model=fake-ranker,version=2}"] == len(QUESTIONS)
    assert counted["cerberank_shadow_flips_total{model=fake-ranker,version=2}"] == told["flips"]


def test_the_shadow_reads_long_texts_as_the_stable_version_did(follow: Follow, store: FolderStore, made: Make) -> None:
    """Two equal versions give one ranking, of candidates and not of windows."""
    push(store, made("1"), "stable")
    push(store, made("2"), "shadow")
    client = follow(shadow_percent=100)
    wait_until(lambda: entry(client, "2").get("labels") == ["shadow"])
    served_by(client, candidates=["a b " * 60, "c", "d e " * 50, "f"], windows="best", drop_ratio=0.3)
    wait_until(lambda: client.get(SHADOW).json()["questions"] == 1)
    told = client.get(SHADOW).json()
    assert (told["flips"], told["score_shift"]) == (0, 0.0)
    assert told["rank_biased_overlap"] == pytest.approx(1.0)


def test_without_a_shadow_there_is_nothing_to_tell(follow: Follow, store: FolderStore, made: Make) -> None:
    """404, also for a model that is not known."""
    push(store, made("1"), "stable", "shadow")
    client = follow()
    wait_until(lambda: client.get("/health/ready").status_code == 200)
    assert client.get(SHADOW).status_code == 404
    assert client.get("/v1/models/other/shadow").status_code == 404


def test_a_busy_service_mirrors_nothing(follow: Follow, store: FolderStore, made: Make) -> None:
    """Questions that overlap are answered, and skipped by the shadow."""
    backends: dict[str, FakeBackend] = {}

    def load(settings: Settings) -> Loaded:
        loaded = open_fake(settings)
        backends[loaded.checkpoint.manifest.version] = loaded.backend  # type: ignore[assignment]
        return loaded

    push(store, made("1"), "stable")
    push(store, made("2"), "shadow")
    client = follow(load, shadow_percent=100)
    wait_until(lambda: entry(client, "2").get("labels") == ["shadow"])
    shadow = service_of(client).shadow
    served_by(client)
    wait_until(lambda: client.get(SHADOW).json()["questions"] == 1)
    stable = service_of(client).versions.find("fake-ranker@1", None)
    with ThreadPoolExecutor(1) as pool:
        with held(backends["1"]):
            waiting = pool.submit(served_by, client)
            assert backends["1"].entered.wait(20)
            shadow.offer(None, stable, _answered())
            assert skipped(client) == 1
        assert waiting.result(20) == "1"


def _answered() -> Any:
    class Complete:
        complete = True

    return Complete()
