"""Versions in a store that must not serve: each is rejected for its own reason, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.models.stores import damage
from tests.service.following import Follow, entry, served_by
from tests.service.observe import samples, wait_until
from tests.service.pushes import SIZE, push

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.store.folder_store import FolderStore


def test_a_damaged_push_is_rejected_for_its_own_reason(
    follow: Follow, store: FolderStore, made: Callable[..., Checkpoint], tmp_path: Path
) -> None:
    """The old version serves on; the reason is in `/v1/models`, and counted."""
    push(store, made("1"), "stable")
    store.push(made("2"))
    graph = tmp_path / "store" / "fake-ranker" / "2" / "onnx" / "int8" / "stage-1.onnx"
    graph.write_bytes(b"y" + graph.read_bytes()[1:])
    store.move_label("fake-ranker", "stable", "2")
    client = follow()
    wait_until(lambda: entry(client, "2").get("state") == "failed")
    assert entry(client, "2")["reason"].startswith("changed: ")
    assert samples(client)["cerberank_rejected_versions_total{model=fake-ranker,reason=changed,version=2}"] == 1
    assert client.get("/health/ready").status_code == 503
    store.move_label("fake-ranker", "stable", "1")
    wait_until(lambda: served_by(client) == "1")
    store.move_label("fake-ranker", "stable", "2")
    wait_until(lambda: entry(client, "2").get("state") == "failed")
    assert served_by(client) == "1"


@pytest.fixture
def push_two(store: FolderStore, made: Callable[..., Checkpoint]) -> Callable[..., None]:
    """A sound version as stable, another one as canary."""

    def push_both(**options: Any) -> None:
        push(store, made("1"), "stable")
        push(store, made("2", **options), "canary")

    return push_both


def test_a_version_that_does_not_fit_is_rejected(push_two: Callable[..., None], follow: Follow) -> None:
    """Beside the one that serves, which goes on."""
    push_two(graph_bytes=100_000)
    client = follow(canary_percent=100, model_memory_bytes=3 * SIZE)
    wait_until(lambda: (entry(client, "2").get("reason") or "").startswith("too_big: "))
    assert samples(client)["cerberank_rejected_versions_total{model=fake-ranker,reason=too_big,version=2}"] == 1
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


def test_one_model_that_cannot_be_read_is_rejected_alone(
    follow: Follow, store: FolderStore, made: Callable[..., Checkpoint], tmp_path: Path
) -> None:
    """A replica that runs and one that starts both follow the labels of the other model."""
    push(store, made("1"), "stable")
    push(store, made("2"))
    running = follow(default_model="fake-ranker")
    wait_until(lambda: served_by(running) == "1")
    store.push(made("1", name="evil"))
    push(store, made("2", name="evil"))
    damage(tmp_path / "store" / "evil", "manifest fifo")
    (tmp_path / "store" / "evil" / "labels.json").write_text('{"stable": "2"}')
    store.move_label("fake-ranker", "stable", "2")
    for client in (running, follow(default_model="fake-ranker")):
        wait_until(lambda client=client: served_by(client) == "2")
        wait_until(lambda client=client: entry(client, "2", "evil").get("state") == "failed")
        assert entry(client, "2", "evil")["reason"].startswith("malformed: ")
        assert samples(client)["cerberank_rejected_versions_total{model=evil,reason=malformed,version=2}"] == 1
