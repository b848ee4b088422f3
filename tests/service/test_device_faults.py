"""A failed GPU, through the real app on a fake device: who is told, and that the process asks to be restarted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend, Faults, loader
from tests.service.following import BODY, Follow, entry, served_by
from tests.service.observe import samples, wait_until
from tests.service.pushes import open_fake, push

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.store.checkpoint_store import Label
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_service.settings import Settings
from cerberank_service.versions.loading import Loaded, Loader


def failed_device() -> RuntimeError:
    return RuntimeError("CUDA error: an illegal memory access was encountered")


def health(client: TestClient) -> tuple[int, int]:
    """The status of liveness and of readiness."""
    return client.get("/health/live").status_code, client.get("/health/ready").status_code


def second_fails(at_once: bool) -> Loader:
    """Opens versions; the device fails in version 2, when it loads or when it is asked."""

    def load(checkpoint: Checkpoint, settings: Settings) -> Loaded:
        opened = open_fake(checkpoint, settings)
        if opened.checkpoint.manifest.version != "2":
            return opened
        faults = Faults(always=at_once, error=failed_device)  # asked: by a candidate with the word `explode`
        return Loaded(opened.checkpoint, FakeBackend(opened.checkpoint.config, faults))

    return load


def test_a_failed_device_of_the_only_version(serve: Serve) -> None:
    """The question is answered with an error, later ones are refused, the version is not ready, liveness fails."""
    backend = FakeBackend()
    client = serve(backend)
    assert health(client) == (200, 200)
    backend.faults.always, backend.faults.error = True, failed_device
    assert client.post("/v1/rank", json=BODY).status_code == 503
    assert client.post("/v1/rank", json=BODY).status_code == 503
    (known,) = client.get("/v1/models").json()["models"]
    assert known["state"] == "failed"
    assert health(client) == (503, 503)
    assert client.get("/v2/health/live").status_code == 503
    assert samples(client)["cerberank_ready{}"] == 0


def test_a_device_that_fails_while_the_only_checkpoint_loads(open_app: Serve, tmp_path: Path) -> None:
    """A new process is the only remedy: liveness fails as well."""
    client = open_app(loader(FakeBackend(faults=Faults(always=True, error=failed_device)), tmp_path))
    wait_until(lambda: health(client) == (503, 503))


@pytest.mark.parametrize("label", ["canary", "shadow"])
def test_a_device_that_fails_in_another_version_poisons_the_process(
    follow: Follow, store: FolderStore, made: Callable[..., Checkpoint], label: Label
) -> None:
    """The stable version's engine still runs, but its context is the same; liveness fails, also once 2 is unloaded."""
    push(store, made("1"), "stable")
    push(store, made("2"), label)
    client = follow(second_fails(at_once=False), shadow_percent=0)
    wait_until(lambda: entry(client, "2").get("state") == "ready")
    wait_until(lambda: health(client) == (200, 200))
    asked = BODY | {"model": "fake-ranker@2", "candidates": ["explode"]}
    assert client.post("/v1/rank", json=asked).status_code == 503
    assert entry(client, "2")["state"] == "failed"
    assert entry(client, "1")["state"] == "ready"
    assert health(client) == (503, 503)
    store.move_label("fake-ranker", label, None)
    wait_until(lambda: entry(client, "2") == {})
    assert health(client) == (503, 503)


def test_a_device_that_fails_while_a_version_loads_poisons_the_process(
    follow: Follow, store: FolderStore, made: Callable[..., Checkpoint]
) -> None:
    """The version is rejected like any other that does not run, and liveness fails."""
    push(store, made("1"), "stable")
    client = follow(second_fails(at_once=True))
    wait_until(lambda: served_by(client) == "1")
    push(store, made("2"), "canary")
    wait_until(lambda: entry(client, "2").get("state") == "failed")
    assert entry(client, "2")["reason"].startswith("unusable: ")
    assert health(client) == (503, 503)
