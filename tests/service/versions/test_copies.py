"""Local copies: where they lie, how long, and what becomes of one that hangs or finds no space."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.service.following import Follow, entry, served_by
from tests.service.observe import wait_until
from tests.service.pushes import open_fake, push

from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_models.checkpoint.store.protocol import Reference
from cerberank_service.settings import Settings
from cerberank_service.versions import copies as module
from cerberank_service.versions.copies import Copies, CopyError, GivenUpError
from cerberank_service.versions.loading import Loaded
from cerberank_service.versions.rejection import Reason, RejectedError

ONE, TWO = Reference("fake-ranker", "1"), Reference("fake-ranker", "2")
Make = Callable[..., Checkpoint]
NEVER: Callable[[], bool] = lambda: False  # noqa: E731 - a constant


@pytest.fixture
def copies(store: FolderStore, made: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copies:
    """The copies of a store with version 1, with 60 seconds for each."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    store.push(made("1"))
    made_here = Copies(str(tmp_path / "store"), 60.0)
    made_here.open()
    return made_here


def test_a_copy_is_what_was_pushed(copies: Copies, store: FolderStore, tmp_path: Path) -> None:
    """It is verified, deleted by drop, and the folder goes with close."""
    copies.fetch(ONE, niceness=0, given_up=NEVER)
    folder = copies.folder(ONE)
    assert read_checkpoint(folder).manifest == store.manifest(ONE)
    copies.drop(ONE)
    assert not folder.exists()
    copies.close()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_version_is_at_fault_or_it_is_not(copies: Copies, tmp_path: Path) -> None:
    """The errors of the copying process have their reasons here too, and name no place of this machine."""
    with pytest.raises(RejectedError, match="its versions: 1") as caught:
        copies.fetch(TWO, niceness=0, given_up=NEVER)
    assert caught.value.reason is Reason.TORN
    (tmp_path / "store" / "fake-ranker" / "1").rename(tmp_path / "store" / "fake-ranker" / "2")
    with pytest.raises(RejectedError, match="calls itself fake-ranker@1") as caught:
        copies.fetch(TWO, niceness=0, given_up=NEVER)
    assert caught.value.reason is Reason.MALFORMED
    assert str(tmp_path) not in str(caught.value)
    with pytest.raises(RejectedError, match="nowhere"):
        _other(copies, "nowhere://x").fetch(TWO, niceness=0, given_up=NEVER)


def test_messages_lose_the_places_of_this_machine_but_no_words(copies: Copies, tmp_path: Path) -> None:
    """A store that is named by one word leaves this word in messages."""
    assert copies.shown(f"no {tmp_path / 'store'}/m/1 in {tmp_path / 'store'}") == "no m/1 in "
    assert _other(copies, "store").shown("restore the store, not store/m/1") == "restore the store, not m/1"


def _other(copies: Copies, address: str) -> Copies:
    other = Copies(address, 60.0)
    other.open()
    return other


def test_a_copy_that_hangs_is_ended(copies: Copies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time, or once nobody wants it any more; its process is gone and nothing is left."""
    hang = tmp_path / "hang.py"
    hang.write_text("import os, sys, time\nopen(sys.argv[1], 'w').write(str(os.getpid()))\ntime.sleep(600)\n")
    monkeypatch.setattr(sys, "executable", str(_program(tmp_path, hang, tmp_path / "pid")))
    asked: tuple[tuple[Callable[[], bool], float, type[Exception], str], ...] = (
        (NEVER, 2.0, CopyError, "within 2 seconds"),
        (lambda: True, 60.0, GivenUpError, "^$"),
    )
    for given_up, seconds, kind, why in asked:
        hanging = Copies(str(tmp_path / "store"), seconds)
        hanging.open()
        started = time.monotonic()
        with pytest.raises(kind, match=why) as caught:
            hanging.fetch(ONE, niceness=0, given_up=given_up)
        assert getattr(caught.value, "cause", "time") == "time"
        assert time.monotonic() - started < 30
        assert not hanging.folder(ONE).exists()
        if (tmp_path / "pid").exists():
            with pytest.raises(ProcessLookupError):
                os.kill(int((tmp_path / "pid").read_text()), 0)


def _program(folder: Path, script: Path, told: Path) -> Path:
    """A program that runs `script`, whatever its arguments are."""
    program = folder / "program"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "{told}"\n')
    program.chmod(0o755)
    return program


def test_a_full_disk_is_not_the_stores_fault(copies: Copies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cause is the disk; a process that ends by itself is one too."""
    told = {"kinds": ["OSError"], "message": "it broke", "reason": "unusable"}
    full, broken = json.dumps(told | {"errno": errno.ENOSPC}), json.dumps(told | {"errno": errno.EIO})
    memory = json.dumps(told | {"kinds": ["MemoryError"], "errno": None})
    thread = json.dumps(told | {"kinds": ["RuntimeError"], "errno": None, "message": "can't start new thread"})
    for output, cause, why in (
        (full, "disk", "no space"),
        (broken, "store", "it broke"),
        (memory, "process", "it broke"),
        (thread, "process", "new thread"),
        ("", "process", "status 3"),
    ):
        (tmp_path / "fails.py").write_text(f"print({output!r}, end=''); raise SystemExit(3)")
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", str(_program(tmp_path, tmp_path / "fails.py", tmp_path)))
            with pytest.raises(CopyError, match=why) as caught:
                copies.fetch(ONE, niceness=0, given_up=NEVER)
        assert caught.value.cause == cause


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
def test_a_process_that_cannot_be_started_is_not_the_versions_fault(
    copies: Copies, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """No further process, no memory for one, no descriptors for its pipes."""

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(CopyError, match="no process can copy it") as caught:
        copies.fetch(ONE, niceness=0, given_up=NEVER)
    assert caught.value.cause == "process"


def test_a_process_that_cannot_be_killed_stays_the_only_one(
    copies: Copies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it waits for a dead file system no other is started; once it has ended, copies are made again."""
    sleep = tmp_path / "sleep.py"
    sleep.write_text("import time\ntime.sleep(600)\n")
    kill = subprocess.Popen.kill
    killed: list[subprocess.Popen[bytes]] = []
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(_program(tmp_path, sleep, tmp_path)))
        patched.setattr(module, "KILL_SECONDS", 0.1)

        def remember(self: subprocess.Popen[bytes]) -> None:
            killed.append(self)

        patched.setattr(subprocess.Popen, "kill", remember)
        with pytest.raises(GivenUpError):
            copies.fetch(ONE, niceness=0, given_up=lambda: True)
    (process,) = killed
    try:
        with pytest.raises(CopyError, match=f"{process.pid} was killed and has not ended") as caught:
            copies.fetch(ONE, niceness=0, given_up=NEVER)
        assert caught.value.cause == "process"
    finally:
        kill(process)
        wait_until(lambda: process.poll() is not None)
    copies.fetch(ONE, niceness=0, given_up=NEVER)
    assert copies.folder(ONE).is_dir()


def test_dropping_a_version_keeps_the_others_of_its_model(copies: Copies, store: FolderStore, made: Make) -> None:
    """Only its own copy goes, with what a killed process left beside it."""
    store.push(made("2"))
    for each in (ONE, TWO):
        copies.fetch(each, niceness=0, given_up=NEVER)
    one, two = copies.folder(ONE), copies.folder(TWO)
    (two.parent / ".2.abcdefgh").mkdir()
    copies.drop(TWO)
    assert one.is_dir()
    assert not two.parent.exists()


def test_a_folder_that_nobody_may_look_into_stays(
    copies: Copies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service starts beside a folder that it may not read, such as one of another user with mode 0700."""
    foreign = tmp_path / "tmp" / "cerberank-foreign"
    foreign.mkdir()
    is_file = Path.is_file

    def forbidden(self: Path) -> bool:
        if self.parent == foreign:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return is_file(self)

    monkeypatch.setattr(Path, "is_file", forbidden)
    _other(copies, "x")
    assert foreign.exists()


def test_copies_of_killed_processes_are_removed(copies: Copies, tmp_path: Path) -> None:
    """Those of living neighbours, and what is nobody's, stay."""
    script = (
        "import sys, tempfile\n"
        "from cerberank_service.versions.copies import Copies\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "copies = Copies('x', 1.0)\n"
        "copies.open()\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    folder = tmp_path / "tmp"
    (own,) = folder.iterdir()
    with subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as neighbour:
        assert neighbour.stdout is not None
        assert neighbour.stdout.readline() == b"open\n"
        (killed,) = set(folder.iterdir()) - {own}
        (killed / "fake-ranker").mkdir()
        (folder / "cerberank-notes").mkdir()
        _other(copies, "x")
        assert killed.exists()
        neighbour.kill()
        neighbour.wait()
    _other(copies, "x")
    assert not killed.exists()
    assert own.exists()
    assert (folder / "cerberank-notes").exists()


def test_a_copy_lasts_no_longer_than_opening_it(follow: Follow, store: FolderStore, made: Make, tmp_path: Path) -> None:
    """It is there when the loader opens it, and gone when the version serves or was rejected."""
    seen: list[bool] = []

    def load(settings: Settings) -> Loaded:
        assert settings.checkpoint is not None
        seen.append((settings.checkpoint / "onnx").is_dir())
        return open_fake(settings)

    push(store, made("1"), "stable")
    push(store, made("2", golden_shift=0.5), "canary")
    client = follow(load)
    wait_until(lambda: served_by(client) == "1" and entry(client, "2").get("state") == "failed")
    assert seen == [True, True]
    assert [path for path in tmp_path.glob("cerberank-*/*") if path.name not in (module.LOCK, module.LOADS)] == []


def test_a_fifo_in_a_version_stops_nothing(follow: Follow, store: FolderStore, made: Make, tmp_path: Path) -> None:
    """The version is rejected at once, whatever file is one, and later pushes are served."""
    push(store, made("1"), "stable")
    client = follow()
    wait_until(lambda: served_by(client) == "1")
    for version, file in (("2", "onnx/int8/stage-0.onnx"), ("3", "more"), ("4", "manifest.json")):
        store.push(made(version))
        (tmp_path / "store" / "fake-ranker" / version / file).unlink(missing_ok=True)
        os.mkfifo(tmp_path / "store" / "fake-ranker" / version / file)
    labels = {"canary": "2", "shadow": "3", "stable": "4"}
    (tmp_path / "store" / "fake-ranker" / "labels.json").write_text(json.dumps(labels))
    wait_until(lambda: entry(client, "2").get("state") == "failed")
    push(store, made("5"), "stable")
    wait_until(lambda: served_by(client) == "5")
    wait_until(lambda: entry(client, "2").get("state") == entry(client, "3").get("state") == "failed")
    assert "not a regular file" in entry(client, "2")["reason"]
