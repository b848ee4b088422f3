"""A cache on disk of checkpoints that were imported or pulled. Each is made once, by one of several processes.

A model is imported once for each content and precision, in a process of its own, which needs the extra `import`. The
calling process does not need torch. For a model in the cache only the checkpoint is needed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from cerberank_models import __version__
from cerberank_models.backends.registry import check_precision, usual_backend, usual_precision
from cerberank_models.checkpoint.atomic import remove_remains
from cerberank_models.checkpoint.errors import CheckpointError
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.convert.source import Source
from cerberank_models.python_process import python_command

logger = logging.getLogger(__name__)

PREFIX = "cerberank import: "
"""The beginning of the lines that the command `import` itself writes."""
REPORT_SECONDS = 15.0
QUIET = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}


class ModelImportError(RuntimeError):
    """The model could not be imported; the message contains the reason that `cerberank import` gave."""


def needed_precisions(
    source: Source, device: str, *, backend: str | None = None, precision: str | None = None
) -> tuple[str, ...]:
    """The ONNX forms of an import that the backend runs on `device`; none for torch, which reads the weights.

    The default on a processor is fp32, because int8 ranges measured on few texts keep the order of most candidates, but
    not the scores of the model. Raises ValueError for an unknown backend or precision.
    """
    kind = backend or ("torch" if source.decodes else usual_backend(device))
    usual = "fp32" if kind == "onnx" and device == "cpu" else usual_precision(kind, device)
    chosen = check_precision(kind, precision or usual)
    return (chosen,) if kind == "onnx" and not source.decodes else ()


def open_cache(folder: Path | None = None) -> Path:
    """The folder of imported models, made if needed: `folder`, or `cerberank` in `XDG_CACHE_HOME` or `~/.cache`.

    Raises OSError, which names the variable, if there is no such folder and it cannot be made.
    """
    try:
        cache = folder or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cerberank"
        cache.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
        raise OSError(f"imported models need a folder: {error}; set XDG_CACHE_HOME to one") from error
    return cache


def made_checkpoint(path: Path, make: Callable[[Path], object]) -> Path:
    """The checkpoint `path` in a cache, which `make` writes first if it is missing or damaged.

    If several processes need the same checkpoint, one makes it and the others wait. It appears complete or not at all.
    The next call removes what a killed one left.
    """
    if not _is_valid(path):
        with FileLock(f"{path}.lock"):  # the kernel releases the lock if the process dies
            if not _is_valid(path):
                shutil.rmtree(path, ignore_errors=True)
                remove_remains(path.parent, path.name)
                make(path)
    return path


def _is_valid(path: Path) -> bool:
    """True if the checkpoint `path` exists and is valid; a damaged one is logged."""
    if not path.exists():
        return False
    try:
        read_checkpoint(path)
    except CheckpointError as error:
        logger.warning("a checkpoint in the cache is damaged and will be made again: %s", error)
        return False
    return True


def imported_checkpoint(
    source: Source, precisions: Sequence[str], cache: Path | None = None, *, report: Callable[[str], None] = logger.info
) -> Path:
    """The checkpoint of `source` in the folder `cache` (`open_cache`), which is imported first if it is not there.

    During an import `report` gets a sentence on it, at once and then every 15 seconds. The folder's name depends on the
    model's content, `precisions` and this program's version. Raises ModelImportError, OSError.
    """
    identity = [source.place if source.commit else source.name, source.content(), __version__, *sorted(precisions)]
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
    return made_checkpoint(
        open_cache(cache) / f"{source.name}-{digest}", lambda path: import_elsewhere(source, precisions, path, report)
    )


def trainable(place: str) -> str:
    """A model to train or to learn from: `place`, or the checkpoint that a CERBERUS of its authors there becomes.

    The checkpoint has weights alone, in the usual cache. Raises the errors of `imported_checkpoint`.
    """
    source = Source(place=place, folder=Path(place), commit=None)
    return str(imported_checkpoint(source, ())) if source.is_cerberus else place


def import_arguments(source: Source, precisions: Sequence[str], path: Path) -> list[str]:
    """The arguments for `cerberank import` to write `path`."""
    options = {"name": source.name, "forms": ",".join(precisions), "revision": source.commit}
    # "=" and "--" are needed for values and names that begin with "-".
    named = [f"--{name}={value}" for name, value in options.items() if value is not None]
    return [*named, "--", source.place, str(path)]


@contextmanager
def _reported(model: str, report: Callable[[str], None]) -> Iterator[None]:
    """Report that a model is being imported, at once and every `REPORT_SECONDS` of the block."""
    began, ended = time.monotonic(), threading.Event()

    def repeat() -> None:
        while not ended.wait(REPORT_SECONDS):
            report(f"{model} is being imported, for {time.monotonic() - began:.0f} seconds so far")

    report(f"{model} is being imported; this takes up to some minutes, and is not repeated at the next start")
    thread = threading.Thread(target=repeat, name="import-report", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def import_elsewhere(source: Source, precisions: Sequence[str], path: Path, report: Callable[[str], None]) -> None:
    """Run `cerberank import` in a process of its own, and write its lines to this process's log.

    `--end-with-stdin` ends the import when this process ends, even if this process is killed and cannot stop it.
    """
    process = subprocess.Popen(
        python_command("cerberank", "import", "--end-with-stdin", *import_arguments(source, precisions, path)),
        env={**os.environ, **QUIET},
        stdin=subprocess.PIPE,  # closed by the system when this process ends
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    reason, last = "", "it ended without a word"
    with process, _reported(source.name, report):
        try:
            for line in process.stdout or ():
                of_import = line.startswith(PREFIX)
                if line.startswith("Traceback "):  # earlier lines, such as warnings, are not the reason
                    reason = ""
                text = line.strip().removeprefix(PREFIX)
                reason = text if of_import else f"{reason} {text}" if reason else ""  # a message may have several lines
                last = text or last
                logger.log(logging.INFO if of_import else logging.DEBUG, "import: %s", text)
        except BaseException:
            process.kill()
            raise
    if process.returncode < 0:  # lines before the signal are not the reason
        reason = f"its process was killed by signal {-process.returncode} (out of memory?)"
    if process.returncode and not path.exists():
        raise ModelImportError(f"{source.place} was not imported: {reason or last}")
