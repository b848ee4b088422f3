"""A version is tried in a process of its own: what it does there harms nobody, and rejects it."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.service.following import Follow, entry, served_by
from tests.service.observe import wait_until
from tests.service.pushes import push

from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.store.checkpoint_store import Reference
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_service.settings import Settings
from cerberank_service.versions import loading, watcher
from cerberank_service.versions.copies import LOADS, LOCK, Copies, GivenUpError
from cerberank_service.versions.copy_process import TRIED_WITH, Trial, copy_version
from cerberank_service.versions.failure import Cause, FailedError
from cerberank_service.versions.loading import try_version

NEVER: Callable[[], bool] = lambda: False  # noqa: E731 - a constant
GIB = 1 << 30
Make = Callable[..., Checkpoint]


def rewrite(path: Path, name: str, content: bytes) -> None:
    """Replace a file of a checkpoint together with its hash."""
    (path / name).write_bytes(content)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256(content).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture
def copy(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A checkpoint with real graphs, in a store."""
    config = read_checkpoint(tiny_checkpoint).config
    return shutil.copytree(tiny_checkpoint, tmp_path / "store" / config.name / "1")


@pytest.fixture
def try_it(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Copies and tries the version of `copy` in a process; returns the bytes of memory that it took."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def run(*, most_memory: int = 4 * GIB, spare_memory: int = 4 * GIB) -> int:
        store = str(copy.parent.parent)
        copies = Copies(store, 60.0)
        copies.open()
        settings = Settings.model_construct().model_dump(include=set(TRIED_WITH))
        trial = Trial(settings=settings, most_bytes=GIB, processor_seconds=60)
        reference = Reference(copy.parent.name, copy.name)
        limits = {"most_memory": most_memory, "spare_memory": spare_memory}
        return copies.fetch(reference, niceness=0, given_up=NEVER, trial=trial, **limits)

    return run


def test_a_good_version_passes(try_it: Callable[..., int]) -> None:
    """Linux tells how much memory it took."""
    assert (try_it() > 0) == sys.platform.startswith("linux")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells the memory of a process")
@pytest.mark.parametrize(
    ("limit", "cause", "why"),
    [
        ("most_memory", Cause.TOO_BIG, "bytes of memory, more than 1000000"),
        ("spare_memory", Cause.PROCESS, "the container has 1000000 left for it"),
    ],
)
def test_a_process_that_takes_too_much_memory_is_ended(
    try_it: Callable[..., int], limit: str, cause: Cause, why: str
) -> None:
    """More than any good version is the version's fault; more than the container has left is not."""
    with pytest.raises(FailedError, match=why) as caught:
        try_it(**{limit: 1_000_000})
    assert caught.value.failure.cause is cause


def test_a_version_with_too_many_bytes_is_not_copied(copy: Path, tmp_path: Path) -> None:
    """All files count, also those that nobody reads; a file of holes costs nothing until it is copied."""
    with (copy / "unread").open("wb") as file:
        file.truncate(4 * GIB)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["files"]["unread"] = "0" * 64
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FailedError, match=r"its files have 4\d* bytes, more than 1073741824") as caught:
        copy_version(str(copy.parent.parent), Reference(copy.parent.name, copy.name), tmp_path / "target", GIB)
    assert caught.value.failure.cause is Cause.TOO_BIG
    assert not (tmp_path / "target").exists()


SPIN = """
import sys
from cerberank_service.versions import copy_process, loading
def spin(folder, settings):
    while True:
        pass
loading.try_version = spin
sys.exit(copy_process.main(sys.argv[4:]))
"""


@pytest.mark.parametrize(
    ("script", "cause", "why"),
    [
        ("import os, sys; os.makedirs(sys.argv[7]); os.abort()", Cause.UNUSABLE, "ended with status -6"),
        ("import os, sys; os.makedirs(sys.argv[7]); os.kill(os.getpid(), 9)", Cause.PROCESS, "was killed"),
        (
            "import os, sys, time; os.makedirs(sys.argv[7]); time.sleep(600)",
            Cause.TIME,
            "not opened and checked within",
        ),
        (SPIN, Cause.SLOW, "took more than 1 seconds of a processor"),
    ],
    ids=["crash", "kill", "sleep", "spin"],
)
def test_a_process_that_dies_during_a_trial(
    *,
    store: FolderStore,
    made: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    cause: Cause,
    why: str,
) -> None:
    """A crash is the version's fault, as is an endless loop; a kill, or no time on a busy machine, may not be."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store.push(made("1"))
    program, file = tmp_path / "program", tmp_path / "script.py"
    file.write_text(script)
    # The arguments are: -P -m module address model version target niceness trial.
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{file}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    copies = Copies(str(tmp_path / "store"), 20.0 if cause is Cause.SLOW else 1.0)
    copies.open()
    trial = Trial(settings={}, most_bytes=GIB, processor_seconds=1)
    with pytest.raises(FailedError, match=why) as caught:
        copies.fetch(Reference("fake-ranker", "1"), niceness=0, given_up=NEVER, trial=trial)
    assert caught.value.failure.cause is cause
    assert caught.value.failure.killed == caught.value.failure.is_passing


def test_a_network_with_fewer_positions_than_it_says_is_refused(copy: Path) -> None:
    """The first client with a long text would get an error if only short golden questions were run."""
    question = {"question": "a", "candidates": [{"text": "b"}], "scores": {"int8": [0.5]}, "tolerance": {"int8": 1.0}}
    rewrite(copy, "golden.jsonl", json.dumps(question).encode())
    settings = Settings.model_construct()
    try_version(copy, settings)
    config = json.loads((copy / "config.json").read_text())
    config["transformer"]["max_positions"] += 200
    config["encoding"]["max_length"] += 200
    rewrite(copy, "config.json", json.dumps(config).encode())
    with pytest.raises(Exception, match="out of data bounds"):
        try_version(copy, settings)


def test_for_a_gpu_a_version_is_read_and_its_graphs_rank_one_pair_on_the_processor(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Malformed files are refused; an error of a graph is not, because the GPU decides; weights are not opened."""
    opened: list[str] = []
    load = loading.load

    def record(checkpoint: Checkpoint, settings: Settings) -> loading.Loaded:
        opened.append(f"{settings.backend} {settings.precision} {settings.device}")
        return load(checkpoint, settings)

    monkeypatch.setattr(loading, "load", record)
    settings = Settings.model_construct(device="cuda", backend="onnx", precision="int8")
    try_version(copy, settings)
    assert opened == ["onnx int8 cpu"]
    rewrite(copy, "onnx/int8/stage-1.onnx", b"no graph")
    try_version(copy, settings)
    try_version(copy, settings.model_copy(update={"backend": "torch", "precision": "fp16"}))
    assert len(opened) == 2
    rewrite(copy, "tokenizer.json", b"{}")
    with pytest.raises(ValueError, match="cannot be used"):
        try_version(copy, settings)


def killed(folder: Path, store: Path, *loads: tuple[str, str, int]) -> None:
    """The folder of a service that was killed while it loaded versions."""
    folder.mkdir()
    (folder / LOCK).touch()
    (folder / LOADS).write_text(json.dumps({"store": str(store), "loads": loads}))


def test_a_load_is_noted_until_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next process takes the notes of a killed one over if it follows the same store; each death counts."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    one, two = Reference("m", "1"), Reference("m", "2")
    killed(tmp_path / "cerberank-a", tmp_path / "store", (*one, 1))
    killed(tmp_path / "cerberank-b", tmp_path / "other", (*one, 7))
    killed(tmp_path / "cerberank-c", tmp_path / "store", (*two, 2))
    (tmp_path / "cerberank-c" / LOADS).write_text("{")
    copies = Copies(str(tmp_path / "store"), 1.0)
    copies.open()
    assert (copies.deaths(one), copies.deaths(two)) == (1, 0)
    copies.begin(one)
    copies.begin(two)
    copies.end(two)
    assert copies.deaths(one) == 2
    (noted,) = tmp_path.glob(f"cerberank-*/{LOADS}")
    assert json.loads(noted.read_text())["loads"] == [[*one, 2]]


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_version_that_killed_the_service_does_not_keep_it_from_serving(
    *,
    follow: Follow,
    store: FolderStore,
    made: Make,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    deaths: int,
) -> None:
    """The last version that served stands in. After one death the other is tried again, after two it is rejected."""
    push(store, made("1"))
    store.note_served(Reference("fake-ranker", "1"))
    push(store, made("2"), "stable")
    killed(tmp_path / "cerberank-killed", tmp_path / "store", ("fake-ranker", "2", deaths))
    with caplog.at_level("INFO"):
        client = follow()
        if deaths == 1:
            wait_until(lambda: served_by(client) == "2")
            assert "fake-ranker@1 stands in for 2, which is not loaded yet" in caplog.text
            return
        wait_until(lambda: entry(client, "2").get("state") == "failed")
        wait_until(lambda: served_by(client) == "1")
    (notes,) = tmp_path.glob(f"cerberank-*/{LOADS}")
    assert json.loads(notes.read_text())["loads"] == [["fake-ranker", "2", 2]], "the next process must not try it"
    assert "2 processes in a row were killed while they loaded it" in entry(client, "2")["reason"]


def test_a_version_that_was_rejected_for_kills_is_loaded_if_it_is_asked_for_again(
    follow: Follow, store: FolderStore, made: Make, tmp_path: Path
) -> None:
    """For example by an operator; after that nothing is noted against it."""
    push(store, made("1"), "stable")
    push(store, made("2"), "canary")
    killed(tmp_path / "cerberank-killed", tmp_path / "store", ("fake-ranker", "2", 2))
    client = follow()
    wait_until(lambda: entry(client, "2").get("state") == "failed")
    store.move_label("fake-ranker", "canary", None)
    wait_until(lambda: not entry(client, "2"))
    store.move_label("fake-ranker", "canary", "2")
    wait_until(lambda: entry(client, "2").get("state") == "ready")
    (notes,) = tmp_path.glob(f"cerberank-*/{LOADS}")
    wait_until(lambda: json.loads(notes.read_text())["loads"] == [])


def test_a_version_that_is_tried_for_long_keeps_no_replica_from_being_ready(
    follow: Follow, store: FolderStore, made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two kills in a row reject it, also if another version stands in for it or if it is a canary."""
    fetch, ended = Copies.fetch, threading.Event()

    def slow(self: Copies, reference: Reference, **options: Any) -> int:
        if reference.version == "2":
            wait_until(lambda: ended.is_set() or options["given_up"]())
            raise FailedError(Cause.TIME, "it was not opened in time", killed=True) if ended.is_set() else GivenUpError
        return fetch(self, reference, **options)

    monkeypatch.setattr(Copies, "fetch", slow)
    monkeypatch.setattr(watcher, "LONGEST_START", 0.0)
    push(store, made("1"))
    store.note_served(Reference("fake-ranker", "1"))
    push(store, made("2"), "stable")
    client = follow()
    wait_until(lambda: client.get("/health/ready").status_code == 200)
    wait_until(lambda: entry(client, "2").get("state") == "loading")
    push(store, made("3"), "stable")
    store.move_label("fake-ranker", "canary", "2")
    other = follow()
    wait_until(lambda: served_by(client, model="fake-ranker@stable") == "3")
    wait_until(lambda: other.get("/health/ready").status_code == 200)
    ended.set()
    for replica in (client, other):
        wait_until(lambda replica=replica: entry(replica, "2").get("state") == "failed")
        assert "the last time it was not opened in time" in entry(replica, "2")["reason"]
