"""Imported models in a cache on disk: imported once for each content, length and precision, in a process of its own.

In: a model that exists and how to import it. Out: the folder of a verified checkpoint. The process that imports needs
the extra `import`; the one that asks needs no torch, and of a model that is in the cache nothing but its checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from cerberank_models import __version__
from cerberank_models.backends.registry import check_precision, usual_backend, usual_precision
from cerberank_models.checkpoint.atomic import remove_remains
from cerberank_models.checkpoint.errors import CheckpointError
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.convert.source import Source

logger = logging.getLogger(__name__)

PREFIX = "cerberank import: "
"""Begins the lines that the verb `import` writes itself."""
QUIET = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}


class ModelImportError(RuntimeError):
    """The model could not be imported; the message has the reason that `cerberank import` gave."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportOptions:
    """The options of an import, which mean what those of `cerberank import` mean."""

    precisions: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, source: Source, device: str, *, backend: str | None = None, precision: str | None = None
    ) -> ImportOptions:
        """The form that the backend needs on `device`; of a decoder the weights alone.

        A processor gets fp32 unless a precision is named: int8 ranges that are measured on few texts keep the order of
        most candidates, not a trusted model's very scores. Raises ValueError for an unknown backend or precision.
        """
        kind = backend or ("torch" if source.decodes else usual_backend(device))
        usual = "fp32" if kind == "onnx" and device == "cpu" else usual_precision(kind, device)
        chosen = check_precision(kind, precision or usual)
        return cls(precisions=(chosen,) if kind == "onnx" and not source.decodes else ())

    def key(self, source: Source) -> str:
        """Names the checkpoint: another content, option or version of this program gives another key."""
        parts: list[object] = [source.place if source.commit else source.name, source.content(), __version__]
        parts += sorted(self.precisions)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def arguments(self, source: Source, path: Path) -> list[str]:
        """The arguments of `cerberank import` that write `path`."""
        options: dict[str, object] = {"name": source.name, "precisions": ",".join(self.precisions)}
        options["revision"] = source.commit
        # With "=" and after "--" a name that begins with "-" is not an option.
        named = [f"--{name}={value}" for name, value in options.items() if value is not None]
        return [*named, "--", source.place, str(path)]


def default_cache() -> Path:
    """`cerberank` in the user's cache folder: `XDG_CACHE_HOME`, or `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cerberank"


def cached_checkpoint(source: Source, options: ImportOptions, cache: Path) -> Path:
    """The checkpoint of `source` in the folder `cache`, imported now if it is not there.

    Of several processes that ask at once one imports and the others wait. The checkpoint appears whole or not at all;
    what a killed import left is removed by the next one, and a checkpoint that is no longer what was written is
    imported again. Raises ModelImportError, OSError.
    """
    path = cache / f"{source.name}-{options.key(source)}"
    if not _is_whole(path):
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):  # the kernel releases it when its holder dies
            if not _is_whole(path):
                shutil.rmtree(path, ignore_errors=True)
                remove_remains(cache, path.name)
                logger.info("%s is imported once, into %s", source.place, path)
                _import(source, options, path)
    return path


def _is_whole(path: Path) -> bool:
    """True if the checkpoint `path` is there and verified; a damaged one is named in the log."""
    if not path.exists():
        return False
    try:
        read_checkpoint(path)
    except CheckpointError as error:
        logger.warning("the imported model is damaged and will be imported again: %s", error)
        return False
    return True


def _import(source: Source, options: ImportOptions, path: Path) -> None:
    """Run `cerberank import`, with its lines in this process's log.

    It ends with this process, also where nothing is left to end it: by a signal that comes as it starts, by SIGKILL.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "cerberank", "import", "--end-with-stdin", *options.arguments(source, path)],
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
                if line.startswith("Traceback "):  # what it said before, such as a warning, is not the reason
                    reason = ""
                text = line.strip().removeprefix(PREFIX)
                reason = text if own else f"{reason} {text}" if reason else ""  # its last message may have more lines
                last = text or last
                logger.log(logging.INFO if own else logging.DEBUG, "import: %s", text)
        except BaseException:
            process.kill()
            raise
    if process.returncode < 0:  # what it said before is not a reason, such as a warning
        reason = f"its process was killed by signal {-process.returncode} (out of memory?)"
    if process.returncode and not path.exists():
        raise ModelImportError(f"{source.place} was not imported: {reason or last}")
