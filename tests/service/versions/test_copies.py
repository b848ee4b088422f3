"""Local copies: where they lie, how long, and what becomes of one that hangs or finds no space."""

from __future__ import annotations

import errno
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
from cerberank_models.checkpoint.store.checkpoint_store import Reference
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_service.settings import Settings
from cerberank_service.versions import copies as module
from cerberank_service.versions.copies import Copies, GivenUpError
from cerberank_service.versions.failure import Cause, FailedError, Failure
from cerberank_service.versions.loading import Loaded

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


def test_a_failure_of_the_process_is_known_here(copies: Copies, tmp_path: Path) -> None:
    """Its cause is that of the process, and its message names no place of this machine."""
    (tmp_path / "store" / "fake-ranker" / "1").rename(tmp_path / "store" / "fake-ranker" / "2")
    with pytest.raises(FailedError, match="calls itself fake-ranker@1") as caught:
        copies.fetch(TWO, niceness=0, given_up=NEVER)
    assert caught.value.failure.cause is Cause.MALFORMED
    assert str(tmp_path) not in str(caught.value)


def test_messages_lose_the_places_of_this_machine_but_no_words(copies: Copies, tmp_path: Path) -> None:
    """A store that is named by one word leaves this word in messages."""
    assert copies.without_paths(f"no {tmp_path / 'store'}/m/1 in {tmp_path / 'store'}") == "no m/1 in "
    assert _other(copies, "store").without_paths("restore the store, not store/m/1") == "restore the store, not m/1"


def _other(copies: Copies, address: str) -> Copies:
    other = Copies(address, 60.0)
    other.open()
    return other


def test_a_copy_that_hangs_is_ended(copies: Copies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time, or once nobody wants it any more; its process is gone and nothing is left."""
    hang = tmp_path / "hang.py"
    hang.write_text("import os, sys, time\nopen(sys.argv[1], 'w').write(str(os.getpid()))\ntime.sleep(600)\n")
    monkeypatch.setattr(sys, "executable", str(_program(tmp_path, hang, tmp_path / "pid")))
    cases: tuple[tuple[Callable[[], bool], float, type[Exception], str], ...] = (
        (NEVER, 0.5, FailedError, "within 0.5 seconds"),
        (lambda: True, 60.0, GivenUpError, "^$"),
    )
    for given_up, seconds, kind, why in cases:
        hanging = Copies(str(tmp_path / "store"), seconds)
        hanging.open()
        started = time.monotonic()
        with pytest.raises(kind, match=why) as caught:
            hanging.fetch(ONE, niceness=0, given_up=given_up)
        if isinstance(caught.value, FailedError):
            assert caught.value.failure == Failure(cause=Cause.TIME, message=str(caught.value))
        assert time.monotonic() - started < 30
        assert not hanging.folder(ONE).exists()
        if (tmp_path / "pid").exists():
            with pytest.raises(ProcessLookupError):
                os.kill(int((tmp_path / "pid").read_text()), 0)


def _program(folder: Path, script: Path, argument: Path) -> Path:
    """A program that runs `script`, whatever its arguments are."""
    program = folder / "program"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "{argument}"\n')
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("output", "cause", "why"),
    [('{"cause": "disk", "message": "no"}', Cause.DISK, "no space for the copy in"), ("", Cause.PROCESS, "status 3")],
)
def test_a_process_that_fails(
    *, copies: Copies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, cause: Cause, why: str
) -> None:
    """Also one that ends without saying why."""
    (tmp_path / "fails.py").write_text(f"print({output!r}, end=''); raise SystemExit(3)")
    monkeypatch.setattr(sys, "executable", str(_program(tmp_path, tmp_path / "fails.py", tmp_path)))
    with pytest.raises(FailedError, match=why) as caught:
        copies.fetch(ONE, niceness=0, given_up=NEVER)
    assert caught.value.failure.cause is cause


def test_a_process_that_cannot_be_started_is_not_the_versions_fault(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No further process, no memory for one, no descriptors for its pipes."""

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.EIO, "any")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(FailedError, match="no process can copy it") as caught:
        copies.fetch(ONE, niceness=0, given_up=NEVER)
    assert caught.value.failure.cause is Cause.PROCESS


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
        with pytest.raises(FailedError, match=f"{process.pid} was killed and has not ended") as caught:
            copies.fetch(ONE, niceness=0, given_up=NEVER)
        assert caught.value.failure.cause is Cause.PROCESS
    finally:
        kill(process)
        wait_until(lambda: process.poll() is not None)
    copies.fetch(ONE, niceness=0, given_up=NEVER)
    assert copies.folder(ONE).is_dir()


def test_dropping_a_version_keeps_the_others_of_its_model(copies: Copies) -> None:
    """Only its own copy goes, with what a killed process left beside it."""
    one, two = copies.folder(ONE), copies.folder(TWO)
    for folder in (one, two, two.parent / ".2.abcdefgh"):
        folder.mkdir(parents=True)
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

    def load(checkpoint: Checkpoint, settings: Settings) -> Loaded:
        seen.append((checkpoint.path / "onnx").is_dir())
        return open_fake(checkpoint, settings)

    push(store, made("1"), "stable")
    push(store, made("2", golden_shift=0.5), "canary")
    client = follow(load)
    wait_until(lambda: served_by(client) == "1" and entry(client, "2").get("state") == "failed")
    assert seen == [True, True]
    assert [path for path in tmp_path.glob("cerberank-*/*") if path.name not in (module.LOCK, module.LOADS)] == []
