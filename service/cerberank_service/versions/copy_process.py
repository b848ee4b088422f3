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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cerberank_models.checkpoint.folder import CheckpointError
from cerberank_models.checkpoint.store.open_store import open_store
from cerberank_models.checkpoint.store.protocol import Reference
from cerberank_service.engine.faults import text_of
from cerberank_service.settings import Settings
from cerberank_service.versions.rejection import Reason, RejectedError, reason_of

TRIED_WITH = frozenset({"store", "device", "backend", "precision", "threads", "step_tokens"})
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
    Returns 0 after writing the facts of the trial as JSON to standard output, or 1 after writing the error: the names
    of its types, its errno, its text, and the reason for which it would reject the version. Output of libraries is
    redirected to standard error.
    """
    threading.Thread(target=_end_with_input, daemon=True).start()
    verdict = os.dup(1)
    os.dup2(2, 1)
    address, model, version, target, niceness, given = argv
    os.nice(int(niceness))
    _be_killed_first()
    trial = Trial(**json.loads(given)) if given else None
    told = copied(address, Reference(model, version), Path(target), None if trial is None else trial.most_bytes)
    failed = told is not None
    if told is None and trial is not None:
        told = tried(trial, Path(target))
        failed = "message" in told
    with os.fdopen(verdict, "w") as file:
        json.dump(told or {}, file)
    return int(failed)


def copied(address: str, reference: Reference, target: Path, most_bytes: int | None = None) -> dict[str, Any] | None:
    """Copy and verify a version; returns None, or the error as `main` writes it."""

    def copy() -> None:
        store = open_store(address)
        if most_bytes is not None and (size := sum(store.sizes(reference).values())) > most_bytes:
            raise RejectedError(Reason.TOO_BIG, f"its files have {size} bytes, more than {most_bytes}")
        checkpoint = store.pull(reference, target)
        named = Reference(checkpoint.config.name, checkpoint.manifest.version)
        if named != reference:
            raise CheckpointError(f"it lies under {'@'.join(reference)} and calls itself {'@'.join(named)}")

    return _error_of(copy)


def tried(trial: Trial, checkpoint: Path) -> dict[str, Any]:
    """Open and check a copied version; returns the bytes of memory that this took, or the error with its reason."""
    _limit_processor_time(trial.processor_seconds)
    from cerberank_service.versions.loading import try_version  # noqa: PLC0415 - a copy does not need the libraries

    before = _resident()
    # Not from the environment: the settings of the service may have been given as options.
    settings = Settings.model_construct(**trial.settings, checkpoint=checkpoint)
    error = _error_of(lambda: try_version(settings))
    return {"memory": max(0, _resident() - before)} if error is None else error


def _error_of(work: Callable[[], None]) -> dict[str, Any] | None:
    try:
        work()
    except BaseException as error:  # libraries of stores raise their own types, and panics are not Exceptions
        kinds = [kind.__name__ for kind in type(error).__mro__]
        told = {"kinds": kinds, "errno": getattr(error, "errno", None), "message": text_of(error)}
        return told | {"reason": reason_of(error).value}
    return None


def _resident() -> int:
    """The bytes of memory in use; 0 on systems other than Linux."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
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
