"""Local copies of versions: a folder of this process, filled by another process that can be ended when it hangs.

A copy is needed while its version is opened, and deleted then: no backend keeps its files open or mapped.
"""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from cerberank_models.checkpoint.folder import ChangedFileError, CheckpointError, MissingFileError, SurplusFileError
from cerberank_models.checkpoint.store.contract import NotInStoreError, Reference, StoreError
from cerberank_service.versions import copy_process

PREFIX, LOCK = "cerberank-", ".lock"
POLL_SECONDS = 0.1
KILL_SECONDS = 5.0
"""How long an ended process may take to be gone; one that waits for a dead file system may never be."""
FULL = {errno.ENOSPC, errno.EDQUOT}
ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        *(MissingFileError, ChangedFileError, SurplusFileError, CheckpointError),
        *(NotInStoreError, StoreError, FileNotFoundError),
    )
}
"""Errors of the copying process that are a version's own, by name."""


class CopyError(Exception):
    """A version could not be copied for a reason that is not its own, so that it is worth another try."""

    def __init__(self, cause: str, message: str) -> None:
        """`cause` is one of `telemetry.series.COPY_CAUSES`."""
        super().__init__(message)
        self.cause = cause


class Copies:
    """The copies of one process, which follows the store at `address`."""

    def __init__(self, address: str, seconds: float) -> None:
        """No folder is made before `open`; a copy may take so many `seconds`."""
        self._address, self._seconds = address, seconds
        self._root: Path | None = None
        self._lock: FileLock | None = None

    def open(self) -> None:
        """Make the folder, and remove those of processes that were killed. Raises OSError."""
        root = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))
        lock = FileLock(root / LOCK)
        lock.acquire()
        visible = root.with_name(root.name.removeprefix("."))
        root.rename(visible)  # locked before it is visible: a neighbour that starts now takes it for a living one
        self._root, self._lock = visible, lock
        for folder in visible.parent.glob(f"{PREFIX}*"):
            if folder != visible and (folder / LOCK).is_file():
                with suppress(Timeout, OSError), FileLock(folder / LOCK, timeout=0):  # OSError: of another user
                    shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Remove the folder."""
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
        if self._lock is not None:
            self._lock.release()

    def folder(self, reference: Reference) -> Path:
        """Where the copy of a version lies."""
        assert self._root is not None, "copies are made after open"
        return self._root / reference.model / reference.version

    def drop(self, reference: Reference) -> None:
        """Delete a copy, or what there is of it."""
        shutil.rmtree(self.folder(reference).parent, ignore_errors=True)

    def fetch(self, reference: Reference, *, niceness: int, given_up: Callable[[], bool]) -> Path:
        """Copy and verify a version; returns its folder.

        Raises CopyError when it is worth another try, also when `given_up` says meanwhile that nobody wants it;
        CheckpointError, NotInStoreError, FileNotFoundError or RuntimeError when the version is at fault.
        """
        target = self.folder(reference)
        self.drop(reference)
        command = [sys.executable, "-P", "-m", copy_process.__name__, self._address, *reference, str(target)]
        process = subprocess.Popen(
            [*command, str(niceness)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        end = time.monotonic() + self._seconds
        while True:
            try:
                told, noise = process.communicate(timeout=POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                late = time.monotonic() > end
                if late or given_up():
                    _end(process)
                    self.drop(reference)
                    why = f"was not copied and verified within {self._seconds:g} seconds" if late else "was given up"
                    raise CopyError("time", why) from None
        if process.returncode != 0:
            self.drop(reference)
            raise self._error(process.returncode, told, noise)
        return target

    def shown(self, message: str) -> str:
        """A message without the places of the copies and of the store."""
        for place in (str(self._root), self._address):
            message = message.replace(place.rstrip("/") + "/", "").replace(place, "")
        return message

    def _error(self, code: int, told: bytes, noise: bytes) -> Exception:
        if not told:
            last = noise.decode(errors="replace").strip().rpartition("\n")[2]
            return CopyError("process", f"the process that copies ended with status {code}: {last}")
        found = json.loads(told)
        message = self.shown(found["message"])
        if found["errno"] in FULL:
            return CopyError("disk", f"there is no space for the copy in {tempfile.gettempdir()}")
        for name in found["kinds"]:
            if name in ERRORS:
                return ERRORS[name](message)
        return CopyError("store", message) if "OSError" in found["kinds"] else RuntimeError(message)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=KILL_SECONDS)
