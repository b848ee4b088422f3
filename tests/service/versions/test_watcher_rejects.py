"""Versions in a store that must not serve: each is rejected for its own reason, and nothing else changes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.stores import damage
from tests.service.fakes import FakeBackend, FakeState
from tests.service.following import Follow, entry, served_by
from tests.service.observe import samples, wait_until
from tests.service.pushes import SIZE, open_fake, push

from cerberank_models.backends.stage_contract import StageOutput
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_service.settings import Settings
from cerberank_service.versions.loading import Loaded


def damaged(kind: str, version: Path) -> None:
    graph = version / "onnx" / "int8" / "stage-1.onnx"
    match kind:
        case "torn":
            graph.unlink()
        case "changed":
            graph.write_bytes(b"y" + graph.read_bytes()[1:])
        case "surplus":
            (version / "notes.txt").write_text("mine")
        case "malformed":
            manifest = json.loads((version / "manifest.json").read_text())
            (version / "manifest.json").write_text(json.dumps(manifest | {"format": 7}))


@pytest.mark.parametrize("kind", ["torn", "changed", "surplus", "malformed"])
def test_a_damaged_push_is_rejected_for_its_own_reason(
    follow: Follow, store: FolderStore, made: Callable[..., Checkpoint], tmp_path: Path, kind: str
) -> None:
    """The old version serves on; the reason is in `/v1/models`, and counted."""
    push(store, made("1"), "stable")
    store.push(made("2"))
    damaged(kind, tmp_path / "store" / "fake-ranker" / "2")
    store.move_label("fake-ranker", "stable", "2")
    client = follow()
    wait_until(lambda: entry(client, "2").get("state") == "failed")
    assert entry(client, "2")["reason"].startswith(f"{kind}: ")
    assert samples(client)[f"cerberank_rejected_versions_total{{model=fake-ranker,reason={kind},version=2}}"] == 1
    assert client.get("/health/ready").status_code == 503
    store.move_label("fake-ranker", "stable", "1")
    wait_until(lambda: served_by(client) == "1")
    store.move_label("fake-ranker", "stable", "2")
    wait_until(lambda: entry(client, "2").get("state") == "failed")
    assert served_by(client) == "1"


@pytest.mark.parametrize("name", ["CUDA error: an illegal memory access", "out of memory", "Too many open files"])
def test_a_name_in_a_message_is_no_error_of_the_machine(
    follow: Follow, store: FolderStore, made: Callable[..., Checkpoint], tmp_path: Path, name: str
) -> None:
    """Whoever pushes chooses the names of files: they neither fail the device nor change the reason."""
    push(store, made("1"), "stable")
    push(store, made("2"), "canary")
    (tmp_path / "store" / "fake-ranker" / "2" / name).touch()
    client = follow()
    wait_until(lambda: entry(client, "2").get("state") == "failed")
    assert entry(client, "2")["reason"].startswith("surplus: ")
    wait_until(lambda: served_by(client) == "1")
    assert client.get("/health/live").status_code == 200


class GivesNan(FakeBackend):
    def run(self, state: FakeState, stage: int) -> StageOutput[FakeState]:
        output = super().run(state, stage)
        output.scores[:] = np.nan
        return output


class Sleeps(FakeBackend):
    """So slow that no busy machine makes another one as slow."""

    def run(self, state: FakeState, stage: int) -> StageOutput[FakeState]:
        time.sleep(0.2)
        return super().run(state, stage)


@pytest.fixture
def push_two(store: FolderStore, made: Callable[..., Checkpoint]) -> Callable[..., None]:
    """A sound version as stable, another one as canary."""

    def push_both(**options: Any) -> None:
        push(store, made("1"), "stable")
        push(store, made("2", **options), "canary")

    return push_both


@pytest.mark.parametrize(
    ("reason", "options", "settings"),
    [
        ("not_finite", {}, {}),
        ("golden", {"golden_shift": 0.01}, {}),
        ("unusable", {}, {}),
        ("slow", {}, {"slowest_ms": 500}),
        ("too_big", {"graph_bytes": 100_000}, {"model_memory_bytes": 3 * SIZE}),
    ],
)
def test_a_version_that_cannot_serve_is_rejected_for_its_own_reason(
    push_two: Callable[..., None], follow: Follow, reason: str, options: dict[str, Any], settings: dict[str, Any]
) -> None:
    """NaN, other scores than recorded, a model that raises, too slow, too big: the old version serves on."""

    def load(settings: Settings) -> Loaded:
        loaded = open_fake(settings)
        backend = FakeBackend(loaded.checkpoint.config)
        if loaded.checkpoint.manifest.version == "2":
            backend = {"not_finite": GivesNan, "slow": Sleeps}.get(reason, FakeBackend)(backend.config)
            backend.faults.always = reason == "unusable"
        return Loaded(loaded.checkpoint, backend)

    push_two(**options)
    client = follow(load, canary_percent=100, **settings)
    wait_until(lambda: (entry(client, "2").get("reason") or "").startswith(f"{reason}: "))
    assert samples(client)[f"cerberank_rejected_versions_total{{model=fake-ranker,reason={reason},version=2}}"] == 1
    wait_until(lambda: served_by(client) == "1")
    assert client.get("/health/ready").status_code == 200


def test_a_tokenizer_that_panics_is_rejected_and_the_next_version_loads(
    push_two: Callable[..., None],
    follow: Follow,
    store: FolderStore,
    made: Callable[..., Checkpoint],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The panic of a library in Rust is not an Exception: the loader survives it, counts it and goes on."""
    push_two(pre_tokenizer={"type": "FixedLength", "length": 0})
    client = follow()
    wait_until(lambda: entry(client, "2").get("state") == "failed")
    assert entry(client, "2")["reason"].startswith("unusable: ")
    assert samples(client)["cerberank_rejected_versions_total{model=fake-ranker,reason=unusable,version=2}"] == 1
    assert "fake-ranker@2 is rejected (unusable)" in caplog.text
    push(store, made("3"), "stable")
    wait_until(lambda: served_by(client) == "3")


@pytest.mark.parametrize("kind", ["names nul", "names long", "names below", "manifest fifo", "manifest loop"])
def test_one_model_that_cannot_be_read_is_rejected_alone(
    follow: Follow, store: FolderStore, made: Callable[..., Checkpoint], tmp_path: Path, kind: str
) -> None:
    """A replica that runs and one that starts both follow the labels of the other model."""
    push(store, made("1"), "stable")
    push(store, made("2"))
    running = follow(default_model="fake-ranker")
    wait_until(lambda: served_by(running) == "1")
    store.push(made("1", name="evil"))
    push(store, made("2", name="evil"))
    damage(tmp_path / "store" / "evil", kind)
    (tmp_path / "store" / "evil" / "labels.json").write_text('{"stable": "2"}')
    store.move_label("fake-ranker", "stable", "2")
    for client in (running, follow(default_model="fake-ranker")):
        wait_until(lambda client=client: served_by(client) == "2")
        wait_until(lambda client=client: entry(client, "2", "evil").get("state") == "failed")
        assert entry(client, "2", "evil")["reason"].startswith("malformed: ")
        assert samples(client)["cerberank_rejected_versions_total{model=evil,reason=malformed,version=2}"] == 1


def test_a_version_under_another_name_is_rejected(
    follow: Follow, store: FolderStore, made: Callable[..., Checkpoint], tmp_path: Path
) -> None:
    """A folder copied by hand must not answer as what it is not."""
    push(store, made("1"), "stable")
    (tmp_path / "store" / "fake-ranker" / "1").rename(tmp_path / "store" / "fake-ranker" / "2")
    store.move_label("fake-ranker", "stable", "2")
    client = follow()
    wait_until(lambda: entry(client, "2").get("state") == "failed")
    assert "calls itself fake-ranker@1" in entry(client, "2")["reason"]
