"""A store in a folder, local or on a shared file system.

A push ends with one rename of a verified copy. So a version is complete or missing even if the push was killed, and if
two processes push the same version, one succeeds and the other gets an error. Label moves hold a file lock, which the
kernel releases if the process dies, so that no move is lost. Readers need no lock, because `labels.json` is replaced by
a rename.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from cerberank_models.checkpoint.atomic import remove_remains, write_atomically
from cerberank_models.checkpoint.folder import Checkpoint, CheckpointError, copy_checkpoint
from cerberank_models.checkpoint.manifest import MANIFEST, Manifest
from cerberank_models.checkpoint.regular import SMALL, NotRegularError, read_regular
from cerberank_models.checkpoint.store.checkpoint_store import (
    LABELS_FILE,
    CheckpointStore,
    Reference,
    StoreError,
    is_name,
)

LEFT_OVER_SECONDS = 24 * 3600.0
"""The age in seconds at which a hidden folder is taken for the remains of a killed push; no push takes as long."""
LOCK_SECONDS = 30.0


class FolderStore(CheckpointStore):
    """A store in the folder `root`."""

    def __init__(self, root: Path) -> None:
        """Keep the path; the folder is neither read nor created yet."""
        self._root = root

    def _check_exists(self) -> None:
        if not self._root.is_dir():
            raise FileNotFoundError(f"{self._root} is not a folder")

    def _folders(self, path: str) -> list[str]:
        """Hidden folders are left out, because they are unfinished pushes."""
        try:
            return [item.name for item in (self._root / path).iterdir() if is_name(item.name) and item.is_dir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _is_file(self, path: str) -> bool:
        return (self._root / path).is_file()

    def _size(self, path: str) -> int | None:
        return (self._root / path).stat().st_size if self._is_file(path) else None

    def _read(self, path: str, refused: type[CheckpointError | StoreError]) -> bytes | None:
        try:
            return read_regular(self._root / path, SMALL)
        except FileNotFoundError:
            return None
        except NotRegularError as error:
            raise refused(str(error)) from error

    def _place(self, path: str) -> str:
        return str(self._root / path)

    def _replace(self, path: str, content: bytes) -> None:
        write_atomically(self._root / path, content)

    @contextmanager
    def _locked(self, model: str) -> Iterator[None]:
        folder = self._root / model
        if not folder.is_dir():  # there is nothing to lock
            yield
            return
        try:
            with FileLock(folder / f".{LABELS_FILE}.lock", timeout=LOCK_SECONDS):
                yield
        except Timeout:
            raise StoreError(f"{folder}: another process has been moving a label for {LOCK_SECONDS:g} s") from None

    def _add(self, checkpoint: Checkpoint, reference: Reference) -> None:
        """Copy, verify and rename the folder, then remove the remains of pushes that were killed over a day ago."""
        target = self._root / reference.model / reference.version
        try:
            copy_checkpoint(checkpoint.path, target)
        except FileExistsError:
            if not (target / MANIFEST).is_file() or self.manifest(reference) != checkpoint.manifest:
                raise StoreError(
                    f"{target} is there with other content: a version is never changed, push under a new one"
                ) from None
        remove_remains(target.parent, older_than=LEFT_OVER_SECONDS)

    def _copy(self, manifest: Manifest, path: str, target: Path) -> Checkpoint:
        return copy_checkpoint(self._root / path, target)
