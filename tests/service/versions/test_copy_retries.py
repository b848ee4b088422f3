"""A shortage that is not a version's fault does not condemn it: it is tried again, or forgotten when nobody wants it
any more.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.service.following import Follow, entry, served_by, wait_for_a_poll
from tests.service.observe import samples, wait_until
from tests.service.pushes import open_fake, push

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.store.checkpoint_store import Reference
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_service.settings import Settings
from cerberank_service.versions.copies import Copies, GivenUpError
from cerberank_service.versions.failure import Cause, FailedError
from cerberank_service.versions.loading import Loaded

TWO = Reference("fake-ranker", "2")
Make = Callable[..., Checkpoint]


def waits(caplog: pytest.LogCaptureFixture) -> list[float]:
    """Seconds until the next try, of each copy that failed."""
    failed = [record.args for record in caplog.records if "could not be copied" in str(record.msg)]
    return [args[3] for args in failed if isinstance(args, tuple) and isinstance(args[3], float)]


def test_a_version_that_could_not_be_copied_is_tried_again(
    follow: Follow, store: FolderStore, made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version is not condemned for a full disk; meanwhile /v1/models and a metric say why, and others are loaded."""
    push(store, made("1"), "stable")
    fetch, full = Copies.fetch, threading.Event()
    full.set()

    def limited(self: Copies, reference: Reference, **options: object) -> Path:
        if full.is_set() and reference == TWO:
            raise FailedError(Cause.DISK, "there is no space")
        return fetch(self, reference, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Copies, "fetch", limited)
    client = follow()
    wait_until(lambda: served_by(client) == "1")
    push(store, made("2"), "stable")
    reason = "disk: there is no space; it will be copied again in"
    wait_until(lambda: (entry(client, "2").get("reason") or "").startswith(reason))
    push(store, made("3"), "canary")
    wait_until(lambda: entry(client, "3").get("labels") == ["canary"])
    assert samples(client)["cerberank_copy_failures_total{cause=disk}"] >= 1
    assert samples(client)["cerberank_label_wanted_differs{label=stable,model=fake-ranker}"] == 1
    full.clear()
    wait_until(lambda: entry(client, "2").get("labels") == ["stable"])
    assert samples(client)["cerberank_label_wanted_differs{label=stable,model=fake-ranker}"] == 0


def test_a_version_that_is_deleted_while_it_is_opened_is_not_at_fault(
    follow: Follow, store: FolderStore, made: Make, tmp_path: Path
) -> None:
    """Whatever the loader says of it: the store does not have it any more."""

    def load(checkpoint: Checkpoint, settings: Settings) -> Loaded:
        if checkpoint.manifest.version == "2":
            shutil.rmtree(tmp_path / "store" / "fake-ranker" / "2")
            raise RuntimeError("no such operator")
        return open_fake(checkpoint, settings)

    push(store, made("1"), "stable")
    push(store, made("2"), "canary")
    client = follow(load)
    wait_until(lambda: samples(client)["cerberank_copy_failures_total{cause=store}"] >= 1)
    assert not [name for name in samples(client) if "rejected_versions_total{" in name]


def test_a_loader_that_cannot_be_started_is_started_later(
    follow: Follow, store: FolderStore, made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version does not stay `loading` for ever."""
    start, short = threading.Thread.start, threading.Event()

    def limited(self: threading.Thread) -> None:
        if self.name == "loader" and not short.is_set():
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", limited)
    push(store, made("1"), "stable")
    client = follow()
    wait_until(lambda: entry(client, "1").get("state") == "retrying")
    short.set()
    wait_until(lambda: served_by(client) == "1")


def test_a_label_that_moves_away_during_a_copy_is_no_failure(
    follow: Follow, store: FolderStore, made: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is counted, and the version is as unknown as before, with the tries of one that failed."""
    fetch, copying, failing = Copies.fetch, threading.Event(), threading.Event()

    def slow(self: Copies, reference: Reference, **options: Any) -> Path:
        if reference == TWO and failing.is_set():
            raise FailedError(Cause.STORE, "it does not answer")
        if reference == TWO:
            copying.set()
            wait_until(options["given_up"])
            raise GivenUpError
        return fetch(self, reference, **options)

    monkeypatch.setattr(Copies, "fetch", slow)
    push(store, made("1"), "stable")
    client = follow()
    wait_until(lambda: served_by(client) == "1")
    push(store, made("2"), "canary")
    assert copying.wait(20)
    store.move_label("fake-ranker", "canary", None)
    wait_until(lambda: not entry(client, "2"))
    counts = {name: count for name, count in samples(client).items() if "copy_failures_total" in name}
    assert counts
    assert not any(counts.values())
    assert "could not be copied" not in caplog.text
    failing.set()
    store.move_label("fake-ranker", "canary", "2")
    wait_until(lambda: len(waits(caplog)) > 2)
    first, *later = waits(caplog)
    assert max(later) > first
    store.move_label("fake-ranker", "canary", None)
    wait_until(lambda: not entry(client, "2"))
    wait_for_a_poll(client)
    caplog.clear()
    store.move_label("fake-ranker", "canary", "2")
    wait_until(lambda: waits(caplog))
    assert waits(caplog)[0] == first
