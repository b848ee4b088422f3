"""An app that follows a store: real files, real threads, a fake model."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.service.asking import busy
from tests.service.following import Follow, entry, served_by
from tests.service.observe import samples, service_of, wait_until
from tests.service.pushes import open_fake, push

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.store.checkpoint_store import CheckpointStore
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_service.engine import low_priority
from cerberank_service.engine.low_priority import NICENESS
from cerberank_service.settings import Settings
from cerberank_service.versions.loading import Loaded


def test_a_push_is_served_and_the_version_before_stays_for_a_rollback(
    follow: Follow, store: FolderStore, made: Callable[..., Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a restart; the version before last gives its memory, its series and its copy back.

    Memory is returned to a GPU after each of three loads and one unloading.
    """
    returned: list[str] = []
    for module in ("watcher", "memory_budget"):
        monkeypatch.setattr(f"cerberank_service.versions.{module}.return_unused_memory", returned.append)
    client = follow()
    assert client.get("/health/ready").status_code == 503
    for version in ("1", "2", "3"):
        push(store, made(version), "stable")
        wait_until(lambda version=version: served_by(client) == version)
    assert client.get("/health/ready").status_code == 200
    wait_until(lambda: not entry(client, "1"))
    wait_until(lambda: returned == ["cpu"] * 4)
    assert entry(client, "2")["rollback"]
    assert entry(client, "3")["labels"] == ["stable"]
    series = "\n".join(samples(client))
    assert "version=1" not in series
    assert "version=2" in series
    store.move_label("fake-ranker", "stable", "2")
    wait_until(lambda: served_by(client) == "2")
    assert samples(client)["cerberank_label_flips_total{label=stable}"] == 4


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="priorities of threads are Linux'")
def test_a_load_runs_at_low_priority_beside_what_serves(
    follow: Follow, store: FolderStore, made: Callable[..., Checkpoint]
) -> None:
    """The first load has the usual nice value, later ones a raised one, engines never; an open tokenizer is shared.

    PyTorch's threads would keep the raised value, so that a version which it runs is opened at the usual one.
    """
    nice: list[int] = []

    def load(checkpoint: Checkpoint, settings: Settings) -> Loaded:
        nice.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return open_fake(checkpoint, settings)

    push(store, made("1"), "stable")
    client = follow(load)
    wait_until(lambda: served_by(client) == "1")
    push(store, made("2"), "stable")
    wait_until(lambda: served_by(client) == "2")
    assert nice[1] == min(nice[0] + NICENESS, 19)
    threads = [thread for thread in threading.enumerate() if thread.name == "engine"]
    assert {os.getpriority(os.PRIO_PROCESS, thread.native_id or 0) for thread in threads} == {nice[0]}
    first, second = service_of(client).versions.snapshot.live()
    assert first.encoder.tokenizer is second.encoder.tokenizer
    push(store, made("3", weights=True), "canary")
    wait_until(lambda: entry(client, "3").get("state") == "ready")
    assert nice[2] == nice[0]


class Gone:
    """A store that can be taken away."""

    def __init__(self, store: CheckpointStore) -> None:
        self.store, self.gone = store, False

    def __getattribute__(self, name: str) -> Any:
        if name in {"store", "gone"}:
            return object.__getattribute__(self, name)
        if self.gone:
            raise OSError("the network is down")
        return getattr(self.store, name)


@pytest.mark.parametrize("how", ["unreachable", "empty"])
def test_a_store_that_disappears_changes_nothing(
    *,
    follow: Follow,
    store: FolderStore,
    made: Callable[..., Checkpoint],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    """Neither one that raises nor a folder that looks empty; back again, it is followed again, and the log says so."""
    caplog.set_level("INFO")
    push(store, made("1"), "stable")
    push(store, made("2"), "canary")
    taken = Gone(store)
    if how == "unreachable":
        monkeypatch.setattr("cerberank_service.service.open_store", lambda _: taken)
    client = follow(canary_percent=0)
    wait_until(lambda: client.get("/health/ready").status_code == 200)
    if how == "unreachable":
        taken.gone = True
    else:
        (tmp_path / "store").rename(tmp_path / "elsewhere")
    wait_until(lambda: samples(client)["cerberank_store_reachable{}"] == 0)
    assert (served_by(client), served_by(client, model="fake-ranker@canary")) == ("1", "2")
    assert "can be read again" not in caplog.text
    if how == "unreachable":
        taken.gone = False
    else:
        (tmp_path / "elsewhere").rename(tmp_path / "store")
    store.move_label("fake-ranker", "stable", "2")
    wait_until(lambda: served_by(client) == "2")
    assert samples(client)["cerberank_store_reachable{}"] == 1
    lines = [record.getMessage() for record in caplog.records]
    assert lines.index("loading fake-ranker@1: it is copied and tried first") < lines.index(
        next(line for line in lines if line.startswith("ready: fake-ranker@1 after"))
    )
    assert lines.count("the store can be read again") == 1


def test_a_probe_says_why_there_is_nothing_to_serve(
    follow: Follow, store: FolderStore, made: Callable[..., Checkpoint], tmp_path: Path
) -> None:
    """A store that does not exist or has no stable label, labels that cannot be read, a version that is rejected."""
    client = follow()

    def probe() -> str:
        answer = client.get("/health/ready")
        return "" if answer.status_code == 200 else str(answer.json().get("reason"))

    wait_until(lambda: probe() == "the store does not exist")
    push(store, made("1"))
    wait_until(lambda: probe() == "no stable label in the store")
    labels = tmp_path / "store" / "fake-ranker" / "labels.json"
    os.mkfifo(labels)
    wait_until(lambda: "the labels of fake-ranker cannot be read: " in probe())
    assert str(tmp_path) not in probe()
    labels.unlink()
    push(store, made("2", golden_shift=0.5), "stable")
    wait_until(lambda: probe().startswith("fake-ranker@2: golden: "))
    store.move_label("fake-ranker", "stable", "1")
    wait_until(lambda: not probe())


def test_a_question_that_is_under_way_is_answered_by_the_version_that_took_it(
    follow: Follow, store: FolderStore, made: Callable[..., Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the label moves meanwhile: its version ends when the answer is given, not before."""
    monkeypatch.setattr(low_priority, "LONGEST_WAIT", 0.001)  # loads wait for the question at each of their pieces
    backends = {}

    def load(checkpoint: Checkpoint, settings: Settings) -> Loaded:
        loaded = open_fake(checkpoint, settings)
        backends[loaded.checkpoint.manifest.version] = loaded.backend
        return loaded

    push(store, made("1"), "stable")
    client = follow(load)
    wait_until(lambda: client.get("/health/ready").status_code == 200)
    with ThreadPoolExecutor(1) as pool:
        with busy(backends["1"], pool.submit, served_by, client) as waiting:
            for version in ("2", "3"):
                push(store, made(version), "stable")
                wait_until(lambda version=version: entry(client, version).get("labels") == ["stable"])
            wait_until(lambda: entry(client, "1")["state"] == "unloading")
            assert served_by(client, model="fake-ranker@1") == "status 404"
        assert waiting.result(20) == "1"
    wait_until(lambda: not entry(client, "1"))


def test_a_store_that_does_not_answer_is_seen(
    follow: Follow, store: FolderStore, made: Callable[..., Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The age of the last poll grows while a read hangs, and falls once it has ended."""
    models, answers = FolderStore.models, threading.Event()
    answers.set()

    def hang(self: FolderStore) -> tuple[str, ...]:
        assert answers.wait(60)
        return models(self)

    monkeypatch.setattr(FolderStore, "models", hang)
    push(store, made("1"), "stable")
    client = follow()
    wait_until(lambda: served_by(client) == "1")
    age = "cerberank_store_poll_age_seconds{}"
    try:
        answers.clear()
        wait_until(lambda: samples(client)[age] > 0.5)
        assert served_by(client) == "1"
    finally:
        answers.set()
    wait_until(lambda: samples(client)[age] < 0.5)


@pytest.mark.parametrize("method", ["record", "note_served"])
def test_without_the_record_everything_else_works(
    follow: Follow,
    store: FolderStore,
    made: Callable[..., Checkpoint],
    caplog: pytest.LogCaptureFixture,
    method: str,
) -> None:
    """Whatever a file system raises; the log says once that nothing can be noted."""

    def fail(self: FolderStore, *arguments: object) -> None:
        raise NotImplementedError("not on this file system")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FolderStore, method, fail)
        client = follow()
        for version in ("1", "2"):
            push(store, made(version), "stable")
            wait_until(lambda version=version: served_by(client) == version)
        if method == "note_served":
            assert caplog.text.count("the store cannot be told") == 1
