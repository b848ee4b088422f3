"""Pushers that are killed and pushers that race, as forked processes."""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from tests.models.stores import Objects
from tools.versions import edit, versions_of

from cerberank_models.checkpoint import regular
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.store.checkpoint_store import LABELS, CheckpointStore, Reference, StoreError
from cerberank_models.checkpoint.store.folder_store import LEFT_OVER_SECONDS, FolderStore
from cerberank_models.checkpoint.store.open_store import open_store
from cerberank_models.checkpoint.store.url_store import UrlStore

MODEL = "random-tiny"
WAIT_SECONDS = 120.0
Stores = Callable[[Path], CheckpointStore]


def by_url(root: Path) -> CheckpointStore:
    """A store of the code for URLs, on objects that several processes share."""
    return UrlStore(Objects(), str(root), lease_seconds=0.2)


STORES = pytest.mark.parametrize("make", [FolderStore, by_url], ids=["folder", "url"])


def fork(work: Callable[[], object]) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process


def join(*processes: BaseProcess) -> list[int | None]:
    for process in processes:
        process.join(WAIT_SECONDS)
    return [process.exitcode for process in processes]


def check_whole(store: CheckpointStore, target: Path) -> int:
    """Every version that is visible can be pulled and verified; returns how many there are."""
    for version in store.versions(MODEL):
        store.pull(Reference(MODEL, version), target / version)
        (target / version).rename(target / f"done-{random.random()}")
    return len(store.versions(MODEL))


def die_at_event(limit: int) -> None:
    """Kill this process, as `kill -9` would, at its n-th opening, renaming, creating or removing of a file."""
    count = 0

    def hook(event: str, arguments: object) -> None:
        nonlocal count
        if event in {"open", "os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.chmod"}:
            count += 1
            if count == limit:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


@pytest.mark.slow
@STORES
def test_a_pusher_that_dies_at_any_file_leaves_no_half_version(
    make: Stores, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """Killed at each file system operation in turn, it leaves a store in which the next push and move succeed."""
    path = versions_of(tiny_checkpoint, tmp_path, ["1"])["1"]
    checkpoint = read_checkpoint(path)
    for step in range(1, 1000):
        store = make(tmp_path / f"store-{step}")

        def work(limit: int = step, store: CheckpointStore = store) -> None:
            die_at_event(limit)
            store.push(checkpoint)
            store.move_label(MODEL, "stable", "1")

        (code,) = join(fork(work))
        visible, labels = store.versions(MODEL), store.labels(MODEL)
        assert (visible, labels) in [((), {}), (("1",), {}), (("1",), {"stable": "1"})]
        check_whole(store, tmp_path / f"pulled-{step}")
        store.push(checkpoint)
        store.move_label(MODEL, "stable", "1")
        assert (store.versions(MODEL), store.labels(MODEL)) == (("1",), {"stable": "1"})
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert step > 30  # otherwise the hook saw nothing of the copying
    assert code == 0


@STORES
def test_pushers_at_once_lose_no_version(make: Stores, tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Four processes push twelve versions of one model while they move labels."""
    names = [f"1.{index}" for index in range(12)]
    checkpoints = {name: read_checkpoint(path) for name, path in versions_of(tiny_checkpoint, tmp_path, names).items()}
    store = make(tmp_path / "store")

    def work(part: list[str]) -> None:
        for name in part:
            store.push(checkpoints[name])
            store.move_label(MODEL, "stable", name)

    pushers = [fork(lambda part=names[start::4]: work(part)) for start in range(4)]
    assert join(*pushers) == [0] * 4
    assert set(store.versions(MODEL)) == set(names)
    assert check_whole(store, tmp_path / "pulled") == 12


@STORES
def test_of_two_pushers_of_one_version_one_wins(make: Stores, tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Six times, two pushers of different content leave one complete version, and the loser gets an error."""
    made = versions_of(tiny_checkpoint, tmp_path, ["1", "2"])
    edit(made["2"], version="1")
    first, second = (read_checkpoint(path) for path in made.values())
    for round_ in range(6):
        store = make(tmp_path / f"store-{round_}")

        def work(mine: bool, store: CheckpointStore = store) -> None:
            try:
                store.push(first if mine else second)
            except StoreError:
                sys.exit(3)

        codes = join(fork(lambda: work(True)), fork(lambda: work(False)))
        assert sorted(codes, key=str) == [0, 3]
        winner = (first, second)[codes.index(0)]
        assert store.manifest(Reference(MODEL, "1")) == winner.manifest
        assert check_whole(store, tmp_path / f"pulled-{round_}") == 1


@STORES
def test_label_moves_at_once_do_not_lose_each_other(make: Stores, tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Three processes move a label each forty times, and each finds its label as it left it."""
    paths = versions_of(tiny_checkpoint, tmp_path, ["1", "2"])
    store = make(tmp_path / "store")
    for path in paths.values():
        store.push(read_checkpoint(path))

    def work(label: str) -> None:
        before = None
        for turn in range(40):
            version = "12"[turn % 2]
            if store.move_label(MODEL, label, version) != before:  # type: ignore[arg-type]
                sys.exit(4)
            before = version

    assert join(*[fork(lambda label=label: work(label)) for label in LABELS]) == [0, 0, 0]
    assert store.labels(MODEL) == dict.fromkeys(LABELS, "2")


def test_the_lease_of_a_dead_mover_ends(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """A process killed while it holds the lease blocks others no longer than the lease lasts."""
    store = by_url(tmp_path / "store")
    store.push(read_checkpoint(versions_of(tiny_checkpoint, tmp_path, ["1"])["1"]))
    (tmp_path / "store" / MODEL / "labels.json.lease").write_bytes(b"a dead process")
    assert store.move_label(MODEL, "stable", "1") is None
    assert store.labels(MODEL) == {"stable": "1"}
    assert not (tmp_path / "store" / MODEL / "labels.json.lease").exists()


def test_what_a_killed_pusher_left_is_removed_a_day_later(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """The remains of an old push are removed; an unfinished recent push is left alone."""
    store = FolderStore(tmp_path / "store")
    old, new = (tmp_path / "store" / MODEL / name for name in (".1.aaaaaaaa", ".2.bbbbbbbb"))
    for folder in (old, new):
        folder.mkdir(parents=True)
    day_ago = time.time() - LEFT_OVER_SECONDS - 1
    os.utime(old, (day_ago, day_ago))
    store.push(read_checkpoint(versions_of(tiny_checkpoint, tmp_path, ["3"])["3"]))
    assert (old.exists(), new.exists()) == (False, True)


class _Interrupted(io.BytesIO):
    """A file that is read for the second time when somebody presses Ctrl-C."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell():
            raise KeyboardInterrupt
        return super().read(size)


@pytest.mark.parametrize("address", ["objects", "memory"])
def test_an_interrupted_push_to_a_url_can_be_repeated(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """Closing the object puts what was written so far; it is removed, so that its name is not taken by a part."""
    store = UrlStore(Objects(), str(tmp_path / "store")) if address == "objects" else open_store(f"memory://{tmp_path}")
    opened, checkpoint = Path.open, read_checkpoint(tiny_checkpoint)

    def open_(self: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
        file = opened(self, mode, *rest, **options)
        if self.suffix == ".onnx" and mode == "rb":
            with file:
                return _Interrupted(file.read())
        return file

    monkeypatch.setattr(regular, "BLOCK", 1000)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", open_)
        with pytest.raises(KeyboardInterrupt):
            store.push(checkpoint)
    assert store.push(checkpoint).version == "1"
    assert store.pull(Reference("random-tiny", "1"), tmp_path / "pulled").manifest == checkpoint.manifest
