"""Local copies of versions from the store, in a folder that belongs to this process.

Another process copies a version and tries it, because that process can be killed when it hangs or takes too much, and
may die without harm. A copy is deleted once its version is open, because backends keep files neither open nor mapped.

A load is noted in the folder before it begins. If the process dies meanwhile, the next one finds the note.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from cerberank_models.checkpoint.atomic import write_json
from cerberank_models.checkpoint.regular import SMALL, read_regular
from cerberank_models.checkpoint.store.checkpoint_store import Reference
from cerberank_models.python_process import python_command
from cerberank_service.versions import copy_process
from cerberank_service.versions.copy_process import Trial, memory_of
from cerberank_service.versions.failure import Cause, FailedError

PREFIX, LOCK, LOADS = "cerberank-", ".lock", "loads.json"
POLL_SECONDS = 0.05
"""Interval at which the process's memory is read. Filling new memory takes about a second for each 2 GB."""
KILL_SECONDS = 5.0
"""Seconds to wait for a killed process to end; a process that waits for a dead file system may never end."""
LONGEST_LINE = 500
"""The most bytes of a process's last words in a message."""


class GivenUpError(Exception):
    """A copy was stopped because the version is not wanted any more."""


class Copies:
    """The copies of one process, which follows the store at `address`."""

    def __init__(self, address: str, seconds: float) -> None:
        """Create no folder before `open`; a copy may take at most `seconds`."""
        self._address = address
        self._seconds = seconds
        self._root: Path | None = None
        self._lock: FileLock | None = None
        self._hanging: subprocess.Popen[bytes] | None = None
        self._loads: dict[Reference, int] = {}

    def open(self) -> None:
        """Create the folder unless it exists, and remove the folders of killed processes. Raises OSError."""
        if self._root is not None:
            return
        root = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))
        lock = FileLock(root / LOCK)
        lock.acquire()
        visible = root.with_name(root.name.removeprefix("."))
        root.rename(visible)  # locked before it is visible, or another service that starts now would remove it
        self._root = visible
        self._lock = lock
        for folder in visible.parent.glob(f"{PREFIX}*"):
            with suppress(Timeout, OSError):  # OSError: the folder may belong to another user and be unreadable
                if folder != visible and (folder / LOCK).is_file():
                    with FileLock(folder / LOCK, timeout=0):
                        self._take_over(folder)
                        shutil.rmtree(folder, ignore_errors=True)

    def _take_over(self, folder: Path) -> None:
        """Add the notes of a killed process that followed the same store."""
        try:
            notes = json.loads(read_regular(folder / LOADS, SMALL))
            loads = {Reference(*names): int(count) for *names, count in notes["loads"]}
        except (OSError, ValueError, TypeError, KeyError):  # none, or of another release
            return
        if notes["store"] == self._address:
            self._loads |= {version: max(count, self._loads.get(version, 0)) for version, count in loads.items()}
            self._write_loads()

    def deaths(self, reference: Reference) -> int:
        """The number of times in a row that a process was killed while it loaded this version, or while it tried it."""
        return self._loads.get(reference, 0)

    def begin(self, reference: Reference) -> None:
        """Note on the disk that a load begins. `end` must follow unless a process was killed. Raises FailedError."""
        self._loads[reference] = self.deaths(reference) + 1
        try:
            self._write_loads()
        except OSError as error:
            message = f"the load cannot be noted in {tempfile.gettempdir()}: {error.strerror}"
            raise FailedError(Cause.DISK, message) from error

    def end(self, reference: Reference) -> None:
        """Remove the note of a load, which ended without killing a process."""
        if self._loads.pop(reference, None) is not None:
            with suppress(OSError):  # at worst the version counts as having killed a process
                self._write_loads()

    def _write_loads(self) -> None:
        if self._root is not None and self._root.is_dir():
            loads = [[*reference, count] for reference, count in sorted(self._loads.items())]
            write_json(self._root / LOADS, {"store": self._address, "loads": loads})

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

    def fetch(
        self,
        reference: Reference,
        *,
        niceness: int,
        given_up: Callable[[], bool],
        trial: Trial | None = None,
        most_memory: int = sys.maxsize,
        spare_memory: int = sys.maxsize,
    ) -> int:
        """Copy and verify a version, and try it; returns the bytes of memory that opening it took, or 0 if unknown.

        Copying may take the seconds that were given, and the trial as many. The process's memory, which only Linux
        tells, is limited by `most_memory`, which no good version takes, and by `spare_memory`, which the container has
        left at this moment.

        Raises FailedError, and GivenUpError as soon as `given_up` returns True.
        """
        target = self.folder(reference)
        self.drop(reference)
        limits = "" if trial is None else str(trial)
        command = python_command(copy_process.__name__, self._address, *reference, str(target), str(niceness), limits)
        # A process that could not be killed stays the only one, until it has ended.
        if self._hanging is not None:
            if self._hanging.poll() is None:
                raise FailedError(
                    Cause.PROCESS, f"an earlier copy's process {self._hanging.pid} was killed and has not ended"
                )
            self._hanging.communicate()  # closes its pipes
            self._hanging = None
        try:
            with _started(command) as process:
                output, errors = self._output(process, target, given_up, most_memory, spare_memory)
        except OSError as error:  # descriptors, processes or memory are short
            raise FailedError(Cause.PROCESS, f"no process can copy it: {error}") from error
        if process.returncode != 0:
            raise self._failure(process.returncode, output, errors, trial if target.exists() else None)
        return int(json.loads(output)["memory"])

    def _output(
        self,
        process: subprocess.Popen[bytes],
        target: Path,
        given_up: Callable[[], bool],
        most_memory: int,
        spare_memory: int,
    ) -> tuple[bytes, bytes]:
        """Wait for the process to end; returns its standard output and standard error.

        Kills the process, and raises FailedError when it takes too long or too much memory, or GivenUpError when the
        copy is given up.
        """
        end, copied = time.monotonic() + self._seconds, False
        while True:
            try:
                return process.communicate(timeout=POLL_SECONDS)
            except subprocess.TimeoutExpired:
                late, memory = time.monotonic() > end, memory_of(process.pid)
                if not copied and target.exists():  # the trial begins, with the same limit of time
                    copied, late, end = True, False, time.monotonic() + self._seconds
                if not late and memory <= min(most_memory, spare_memory) and not given_up():
                    continue
            self._end(process)
            if memory > most_memory:
                raise FailedError(
                    Cause.TOO_BIG, f"the process that tried it took {memory} bytes of memory, more than {most_memory}"
                )
            if memory > spare_memory:
                raise FailedError(
                    Cause.PROCESS,
                    f"the process that tries it took {memory} bytes of memory, and the container has {spare_memory} "
                    "left for it beside the service; give the container more memory",
                )
            if late:
                step = "opened and checked" if copied else "copied and verified"
                message = f"it was not {step} within {self._seconds:g} seconds"
                raise FailedError(Cause.TIME, message, killed=copied)
            raise GivenUpError

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process. One that does not end is remembered, so that no further copy is started meanwhile."""
        process.kill()
        try:
            process.communicate(timeout=KILL_SECONDS)
        except subprocess.TimeoutExpired:
            self._hanging = process

    def without_paths(self, message: str) -> str:
        """The message without the paths of the copies and of the store."""
        for place in (str(self._root), self._address):
            # A name alone, such as `store`, is also a word of messages.
            before, after = ("", "/?") if "/" in place else (r"(?<![\w./-])", "/")
            message = re.sub(f"{before}{re.escape(place.rstrip('/'))}{after}", "", message)
        return message

    def _failure(self, code: int, output: bytes, errors: bytes, trial: Trial | None) -> FailedError:
        """The failure of a process that ended with the status `code`; `trial` is None if it ended while it copied."""
        if output:
            failure = json.loads(output)
            cause = Cause(failure["cause"])
            if cause is Cause.DISK:
                return FailedError(cause, f"there is no space for the copy in {tempfile.gettempdir()}")
            return FailedError(cause, self.without_paths(failure["message"]))
        if code == -signal.SIGKILL:
            message = "the process that copied or tried it was killed (SIGKILL)"
            return FailedError(Cause.PROCESS, message, killed=True)
        last = errors[-LONGEST_LINE:].decode(errors="replace").strip().rpartition("\n")[2]
        if trial is None:
            return FailedError(Cause.PROCESS, f"the process that copies ended with status {code}: {last}")
        if code == -signal.SIGXCPU:
            most = f"opening and checking it took more than {trial.processor_seconds} seconds of a processor"
            return FailedError(Cause.SLOW, most)
        return FailedError(Cause.UNUSABLE, f"the process that tried it ended with status {code}: {last}")


@contextmanager
def _started(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process whose standard input is closed when the block or this process ends. Raises OSError."""
    reader, writer = os.pipe()
    try:
        try:
            process = subprocess.Popen(command, stdin=reader, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        finally:
            os.close(reader)
        yield process
    finally:
        os.close(writer)
