"""The process that copies one version out of the store, verifies it and tries it. `copies` starts it.

The work has its own process because reading, parsing or running what others wrote may hang, take any memory or kill its
process. The process exits when its standard input is closed, which also happens when the process that started it ends
for any reason.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cerberank_models.checkpoint.folder import CheckpointError
from cerberank_models.checkpoint.store.checkpoint_store import Reference
from cerberank_models.checkpoint.store.open_store import open_store
from cerberank_service.settings import Settings
from cerberank_service.versions.failure import Cause, FailedError, Failure, failure_of

TRIED_WITH = frozenset({"device", "backend", "precision", "threads", "step_tokens"})
"""The settings on which a trial depends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """The limits and settings of a trial, as text on the process's command line."""

    settings: dict[str, Any]
    """The values of TRIED_WITH."""
    most_bytes: int
    """The most bytes of all files together."""
    processor_seconds: int
    """The most seconds that the trial may use a processor; the system kills the process then (SIGXCPU)."""

    def __str__(self) -> str:
        """The JSON for the command line."""
        return json.dumps(asdict(self))


def main(argv: list[str]) -> int:
    """Copy a version and try it.

    `argv` is the store's address, model, version, target folder, the nice value to add, and a `Trial` or "" for none.
    Writes the facts of the trial as JSON to standard output and returns 0, or writes the failure and returns 1. Output
    of libraries is redirected to standard error.
    """
    threading.Thread(target=_end_with_input, daemon=True).start()
    output = os.dup(1)
    os.dup2(2, 1)
    address, model, version, target, niceness, limits = argv
    os.nice(int(niceness))
    _be_killed_first()
    trial = Trial(**json.loads(limits)) if limits else None
    failure, memory, copying = None, 0, True
    try:
        copy_version(address, Reference(model, version), Path(target), None if trial is None else trial.most_bytes)
        copying = False
        if trial is not None:
            memory = try_copy(trial, Path(target))
    except BaseException as error:  # libraries of stores raise their own types, and panics are not Exceptions
        failure = failure_of(error, copying=copying)
    with os.fdopen(output, "w") as file:
        file.write(json.dumps({"memory": memory}) if failure is None else failure_as_json(failure))
    return int(failure is not None)


def failure_as_json(failure: Failure) -> str:
    """The failure as `copies` reads it. A device that fails in this process is the parent's only if it fails there."""
    return json.dumps({"cause": failure.cause.value, "message": failure.message})


def copy_version(address: str, reference: Reference, target: Path, most_bytes: int | None) -> None:
    """Copy and verify a version. Raises FailedError for too many bytes, and as the store does."""
    store = open_store(address)
    if most_bytes is not None and (size := sum(store.sizes(reference).values())) > most_bytes:
        raise FailedError(Cause.TOO_BIG, f"its files have {size} bytes, more than {most_bytes}")
    checkpoint = store.pull(reference, target)
    name = Reference(checkpoint.config.name, checkpoint.manifest.version)
    if name != reference:
        raise CheckpointError(f"it lies under {'@'.join(reference)} and calls itself {'@'.join(name)}")


def try_copy(trial: Trial, folder: Path) -> int:
    """Open and check a copied version; returns the bytes of memory that this took. Raises as `try_version` does."""
    _limit_processor_time(trial.processor_seconds)
    from cerberank_service.versions.loading import try_version  # noqa: PLC0415 - a copy does not need the libraries

    before = memory_of(os.getpid())
    # Not from the environment: the settings of the service may have been given as options.
    try_version(folder, Settings.model_construct(**trial.settings))
    return max(0, memory_of(os.getpid()) - before)


def memory_of(process: int) -> int:
    """The bytes of memory that a process uses; 0 on systems other than Linux, or after its end."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def _be_killed_first() -> None:
    """Tell Linux to kill this process before others of the machine or container when memory is short."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _limit_processor_time(seconds: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + seconds
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _end_with_input() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
