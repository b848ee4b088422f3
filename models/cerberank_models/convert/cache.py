"""A cache on disk of imported models. A model is imported once for each content, length and precision.

The import runs in a process of its own, which needs the extra `import`. The calling process does not need torch. For a
model in the cache only the checkpoint is needed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
from dataclasses import dataclass
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
QUIET = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}


class ModelImportError(RuntimeError):
    """The model could not be imported; the message contains the reason that `cerberank import` gave."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportOptions:
    """The options of an import, with the same meaning as in `cerberank import`."""

    precisions: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, source: Source, device: str, *, backend: str | None = None, precision: str | None = None
    ) -> ImportOptions:
        """The options for the form that the backend needs on `device`; for a decoder, weights only.

        The default on a processor is fp32, because int8 ranges measured on few texts keep the order of most candidates,
        but not the scores of the model. Raises ValueError for an unknown backend or precision.
        """
        kind = backend or ("torch" if source.decodes else usual_backend(device))
        usual = "fp32" if kind == "onnx" and device == "cpu" else usual_precision(kind, device)
        chosen = check_precision(kind, precision or usual)
        return cls(precisions=(chosen,) if kind == "onnx" and not source.decodes else ())

    def key(self, source: Source) -> str:
        """The key of the checkpoint, which depends on the model's content, the options and this program's version."""
        parts: list[object] = [source.place if source.commit else source.name, source.content(), __version__]
        parts += sorted(self.precisions)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def arguments(self, source: Source, path: Path) -> list[str]:
        """The arguments for `cerberank import` to write `path`."""
        options: dict[str, object] = {"name": source.name, "precisions": ",".join(self.precisions)}
        options["revision"] = source.commit
        # "=" and "--" are needed for values and names that begin with "-".
        named = [f"--{name}={value}" for name, value in options.items() if value is not None]
        return [*named, "--", source.place, str(path)]


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


def cached_checkpoint(source: Source, options: ImportOptions, cache: Path | None = None) -> Path:
    """The checkpoint of `source` in the folder `cache` (`open_cache`), which is imported first if it is not there.

    If several processes need the same model, one imports it and the others wait. The checkpoint appears complete or not
    at all. The next import removes the remains of a killed one, and a damaged checkpoint is imported again. Raises
    ModelImportError, OSError.
    """
    cache = open_cache(cache)
    path = cache / f"{source.name}-{options.key(source)}"
    if not _is_whole(path):
        with FileLock(f"{path}.lock"):  # the kernel releases the lock if the process dies
            if not _is_whole(path):
                shutil.rmtree(path, ignore_errors=True)
                remove_remains(cache, path.name)
                logger.info("%s is imported once, into %s", source.place, path)
                _import(source, options, path)
    return path


def _is_whole(path: Path) -> bool:
    """True if the checkpoint `path` exists and is valid; a damaged one is logged."""
    if not path.exists():
        return False
    try:
        read_checkpoint(path)
    except CheckpointError as error:
        logger.warning("the imported model is damaged and will be imported again: %s", error)
        return False
    return True


def _import(source: Source, options: ImportOptions, path: Path) -> None:
    """Run `cerberank import`, and write its lines to this process's log.

    `--end-with-stdin` ends the import when this process ends, even if this process is killed and cannot stop it.
    """
    process = subprocess.Popen(
        python_command("cerberank", "import", "--end-with-stdin", *options.arguments(source, path)),
        env={**os.environ, **QUIET},
        stdin=subprocess.PIPE,  # closed by the system when this process ends
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    reason, last = "", "it ended without a word"
    with process:
        try:
            for line in process.stdout or ():
                own = line.startswith(PREFIX)
                if line.startswith("Traceback "):  # earlier lines, such as warnings, are not the reason
                    reason = ""
                text = line.strip().removeprefix(PREFIX)
                reason = text if own else f"{reason} {text}" if reason else ""  # a message may have several lines
                last = text or last
                logger.log(logging.INFO if own else logging.DEBUG, "import: %s", text)
        except BaseException:
            process.kill()
            raise
    if process.returncode < 0:  # lines before the signal are not the reason
        reason = f"its process was killed by signal {-process.returncode} (out of memory?)"
    if process.returncode and not path.exists():
        raise ModelImportError(f"{source.place} was not imported: {reason or last}")
