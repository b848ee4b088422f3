"""A shadow version with a first stage beside a stable one without, in an app that follows a store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.service.fakes import FakeBackend
from tests.service.first_stages import ENCODER, FakeVectors, config_with_first_stage, loaded_with_first_stage, store_of
from tests.service.following import Follow, entry, served_by
from tests.service.observe import wait_until
from tests.service.pushes import open_fake, push

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.store.folder import FolderStore
from cerberank_service.settings import Settings
from cerberank_service.versions.loading import Loaded

SHADOW = "/v1/models/fake-ranker/shadow"
BODY: dict[str, Any] = {"question": "how tall?", "candidates": ["a", "bb", "ccc", "dddd"]}


class Loading:
    """Version 2 has a first stage, which remembers what it encoded."""

    def __init__(self) -> None:
        config = config_with_first_stage((0.5, 0.0, 0.0))
        assert config.first_stage is not None
        self.config, self.vectors = config, FakeVectors(config.first_stage)
        self.pairs = FakeBackend(config)

    def __call__(self, settings: Settings) -> Loaded:
        loaded = open_fake(settings)
        if loaded.checkpoint.manifest.version != "2":
            return loaded
        return loaded_with_first_stage(loaded.checkpoint, self.vectors, self.pairs)


@pytest.fixture
def loading(store: FolderStore, made: Callable[..., Checkpoint]) -> Loading:
    push(store, made("1"), "stable")
    push(store, made("2"), "shadow")
    return Loading()


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


def test_a_version_without_a_first_stage_is_served_beside_vectors(
    follow: Follow, loading: Loading, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Out of a store it serves, and the log warns once that the settings' vectors are of no use to it."""
    client = follow(loading, vectors=store_of(tmp_path / "vectors", loading.vectors, ["a"], encoder=ENCODER))
    wait_until(lambda: entry(client, "2").get("labels") == ["shadow"])
    assert served_by(client, **BODY) == "1"
    told = [each.getMessage() for each in caplog.records if "no first stage" in each.getMessage()]
    assert len(told) == 1


def test_a_list_of_ratios_that_does_not_fit_the_shadow_is_skipped(follow: Follow, loading: Loading) -> None:
    """Stable and shadow differ in their stages: the question is no failure of the shadow, and is told."""
    client = follow(loading, shadow_percent=100)
    wait_until(lambda: entry(client, "2").get("labels") == ["shadow"])
    assert served_by(client, **BODY, drop_ratio=[0.0, 0.0]) == "1"
    wait_until(lambda: client.get(SHADOW).json()["skipped"] == 1)
    told = client.get(SHADOW).json()
    assert (told["questions"], told["failures"]) == (0, 0)


def test_a_version_of_another_encoder_is_served_without_the_vectors(
    follow: Follow, loading: Loading, tmp_path: Path
) -> None:
    """It becomes ready, computes every vector, and `/v1/models` names both encoders."""
    client = follow(loading, vectors=store_of(tmp_path / "vectors", loading.vectors, ["a"], encoder="f" * 64))
    wait_until(lambda: entry(client, "2").get("labels") == ["shadow"])
    told = entry(client, "2")["first_stage"]
    assert told["vectors"] == 0
    assert ENCODER in told["without_vectors"]
    assert "f" * 64 in told["without_vectors"]
    assert str(tmp_path) not in told["without_vectors"]
    loading.vectors.encoded.clear()
    assert served_by(client, **BODY, model="fake-ranker@2") == "2"
    assert sum(loading.vectors.encoded) == len(BODY["candidates"]) + 1
