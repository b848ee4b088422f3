"""Local copies of versions from the store, in a folder that belongs to this process.

Another process does the copying, because it can be killed when it hangs. A copy is deleted once its version is open,
because backends keep files neither open nor mapped.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from cerberank_models.checkpoint.folder import ChangedFileError, CheckpointError, MissingFileError, SurplusFileError
from cerberank_models.checkpoint.store.contract import NotInStoreError, Reference, StoreError
from cerberank_models.python_process import python_command
from cerberank_service.versions import copy_process
from cerberank_service.versions.rejection import is_shortage

PREFIX, LOCK = "cerberank-", ".lock"
POLL_SECONDS = 0.1
KILL_SECONDS = 5.0
"""Seconds to wait for a killed process to end; a process that waits for a dead file system may never end."""
FULL = {errno.ENOSPC, errno.EDQUOT}
ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        *(MissingFileError, ChangedFileError, SurplusFileError, CheckpointError),
        *(NotInStoreError, StoreError, FileNotFoundError),
    )
}
"""Errors of the copying process that are the fault of the version or the store, by name."""


class CopyError(Exception):
    """A version could not be copied, for a reason other than the version itself, so that a retry may succeed."""

    def __init__(self, cause: str, message: str) -> None:
        """`cause` is one of `telemetry.series.COPY_CAUSES`."""
        super().__init__(message)
        self.cause = cause


class GivenUpError(Exception):
    """A copy was stopped because the version is not wanted any more."""


class Copies:
    """The copies of one process, which follows the store at `address`."""

    def __init__(self, address: str, seconds: float) -> None:
        """Create no folder before `open`; a copy may take at most `seconds`."""
        self._address, self._seconds = address, seconds
        self._root: Path | None = None
        self._lock: FileLock | None = None
        self._hanging: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Create the folder unless it exists, and remove the folders of killed processes. Raises OSError."""
        if self._root is not None:
            return
        root = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))
        lock = FileLock(root / LOCK)
        lock.acquire()
        visible = root.with_name(root.name.removeprefix("."))
        root.rename(visible)  # locked before it is visible, or another service that starts now would remove it
        self._root, self._lock = visible, lock
        for folder in visible.parent.glob(f"{PREFIX}*"):
            with suppress(Timeout, OSError):  # OSError: the folder may belong to another user and be unreadable
                if folder != visible and (folder / LOCK).is_file():
                    with FileLock(folder / LOCK, timeout=0):
                        shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Remove the folder."""
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
        if self._lock is not None:
            self._lock.release()

    def folder(self, reference: Reference) -> Path:
        """The folder of a version's copy."""
        assert self._root is not None, "copies are made after open"
        return self._root / "@".join(reference) / "checkpoint"

    def drop(self, reference: Reference) -> None:
        """Delete a copy, even if it is incomplete."""
        shutil.rmtree(self.folder(reference).parent, ignore_errors=True)

    def fetch(self, reference: Reference, *, niceness: int, given_up: Callable[[], bool]) -> Path:
        """Copy and verify a version; returns its folder.

        Raises CopyError when a retry may succeed, GivenUpError as soon as `given_up` returns True, and CheckpointError,
        NotInStoreError, StoreError, FileNotFoundError or RuntimeError when the version is at fault.
        """
        target = self.folder(reference)
        self.drop(reference)
        command = python_command(copy_process.__name__, self._address, *reference, str(target))
        if self._hanging is not None:
            if self._hanging.poll() is None:
                raise CopyError(
                    "process", f"an earlier copy's process {self._hanging.pid} was killed and has not ended"
                )
            self._hanging.communicate()  # closes its pipes
            self._hanging = None
        try:
            with _started([*command, str(niceness)]) as process:
                told, noise = self._told(process, given_up)
        except OSError as error:  # descriptors, processes or memory are short
            raise CopyError("process", f"no process can copy it: {error}") from error
        if process.returncode != 0:
            raise self._error(process.returncode, told, noise)
        return target

    def _told(self, process: subprocess.Popen[bytes], given_up: Callable[[], bool]) -> tuple[bytes, bytes]:
        """Wait for the process to end; returns its standard output and standard error.

        Kills the process and raises CopyError when it takes too long, or GivenUpError when the copy is given up.
        """
        end = time.monotonic() + self._seconds
        while True:
            try:
                return process.communicate(timeout=POLL_SECONDS)
            except subprocess.TimeoutExpired:
                late = time.monotonic() > end
                if late or given_up():
                    self._end(process)
                    if late:
                        why = f"was not copied and verified within {self._seconds:g} seconds"
                        raise CopyError("time", why) from None
                    raise GivenUpError from None

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process. One that does not end is remembered, so that no further copy is started meanwhile."""
        process.kill()
        try:
            process.communicate(timeout=KILL_SECONDS)
        except subprocess.TimeoutExpired:
            self._hanging = process

    def shown(self, message: str) -> str:
        """The message without the paths of the copies and of the store."""
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
        if "MemoryError" in found["kinds"] or is_shortage(found["errno"], message):
            return CopyError("process", message)
        for name in found["kinds"]:
            if name in ERRORS:
                return ERRORS[name](message)
        return CopyError("store", message) if "OSError" in found["kinds"] else RuntimeError(message)


@contextmanager
def _started(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process whose standard input is closed when the block or this process ends. Raises OSError."""
    own, held = os.pipe()
    try:
        try:
            process = subprocess.Popen(command, stdin=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        finally:
            os.close(own)
        yield process
    finally:
        os.close(held)
