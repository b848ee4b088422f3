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
from cerberank_models.checkpoint.store.protocol import (
    LABELS_FILE,
    RECORD_FILE,
    Label,
    Record,
    Reference,
    StoreError,
    check_model,
    check_version,
    has_versions,
    is_name,
    missing,
    moved_labels,
    natural_order,
    parse_labels,
    parse_manifest,
    parse_record,
    render_labels,
    render_record,
)

LEFT_OVER_SECONDS = 24 * 3600.0
"""The age in seconds at which a hidden folder is taken for the remains of a killed push; no push takes as long."""
LOCK_SECONDS = 30.0


class FolderStore:
    """A store in the folder `root`."""

    def __init__(self, root: Path) -> None:
        """Keep the path; the folder is neither read nor created yet."""
        self._root = root

    def models(self) -> tuple[str, ...]:
        """The models whose folder holds a version. Raises FileNotFoundError if the store does not exist."""
        if not self._root.is_dir():
            raise FileNotFoundError(f"{self._root} is not a folder")
        return tuple(sorted(name for name in _names(self._root) if has_versions(self, name)))

    def versions(self, model: str) -> tuple[str, ...]:
        """The versions whose folder holds a manifest."""
        folder = self._root / check_model(model)
        return natural_order([name for name in _names(folder) if (folder / name / MANIFEST).is_file()])

    def manifest(self, reference: Reference) -> Manifest:
        """Read the version's `manifest.json`."""
        path = self._path(reference) / MANIFEST
        if (content := _read(path, CheckpointError)) is None:
            raise missing(self, reference)
        return parse_manifest(content, str(path))

    def sizes(self, reference: Reference) -> dict[str, int]:
        """Get the size of each file from the file system."""
        paths = {name: self._path(reference) / name for name in self.manifest(reference).files}
        return {name: path.stat().st_size for name, path in paths.items() if path.is_file()}

    def labels(self, model: str) -> dict[Label, str]:
        """Read `labels.json`."""
        path = self._root / check_model(model) / LABELS_FILE
        content = _read(path, StoreError)
        return {} if content is None else parse_labels(content, str(path))

    def push(self, checkpoint: Checkpoint) -> Reference:
        """Copy, verify and rename the folder, then remove the remains of pushes that were killed over a day ago."""
        reference = Reference(check_model(checkpoint.config.name), check_version(checkpoint.manifest.version))
        target = self._path(reference)
        try:
            copy_checkpoint(checkpoint.path, target)
        except FileExistsError:
            if not (target / MANIFEST).is_file() or self.manifest(reference) != checkpoint.manifest:
                raise StoreError(
                    f"{target} is there with other content: a version is never changed, push under a new one"
                ) from None
        remove_remains(target.parent, older_than=LEFT_OVER_SECONDS)
        return reference

    def pull(self, reference: Reference, target: Path) -> Checkpoint:
        """Copy the version's folder and verify the copy."""
        self.manifest(reference)  # raises if the version is missing or broken
        return copy_checkpoint(self._path(reference), target)

    def move_label(self, model: str, label: Label, version: str | None, *, only_from: str | None = None) -> str | None:
        """Rewrite `labels.json` under the model's lock."""
        if version is not None and not (self._path(Reference(model, version)) / MANIFEST).is_file():
            raise missing(self, Reference(model, version))
        folder = self._root / check_model(model)
        if not folder.is_dir():
            return moved_labels({}, label, version, only_from)[1]
        with self._locked(folder):
            labels, before = moved_labels(self.labels(model), label, version, only_from)
            if version != before:
                write_atomically(folder / LABELS_FILE, render_labels(labels))
        return before

    def record(self, model: str) -> Record:
        """Read `record.json`."""
        path = self._root / check_model(model) / RECORD_FILE
        content = _read(path, StoreError)
        return Record() if content is None else parse_record(content, str(path))

    def note_served(self, reference: Reference) -> None:
        """Rewrite `record.json` under the model's lock, unless the version is the latest one in it."""
        folder = self._path(reference).parent
        if self.record(reference.model).served[:1] == (reference.version,):
            return
        with self._locked(folder):
            record = self.record(reference.model).with_served(reference.version)
            write_atomically(folder / RECORD_FILE, render_record(record))

    @contextmanager
    def _locked(self, folder: Path) -> Iterator[None]:
        try:
            with FileLock(folder / f".{LABELS_FILE}.lock", timeout=LOCK_SECONDS):
                yield
        except Timeout:
            raise StoreError(f"{folder}: another process has been moving a label for {LOCK_SECONDS:g} s") from None

    def _path(self, reference: Reference) -> Path:
        return self._root / check_model(reference.model) / check_version(reference.version)


def _read(path: Path, refused: type[CheckpointError | StoreError]) -> bytes | None:
    """The content of a small file; None if it is missing. Raises `refused` if it is not a file, or too large."""
    try:
        return read_regular(path, SMALL)
    except FileNotFoundError:
        return None
    except NotRegularError as error:
        raise refused(str(error)) from error


def _names(folder: Path) -> list[str]:
    """The names of folders that may be models or versions, without hidden folders, which are unfinished pushes."""
    try:
        return [item.name for item in folder.iterdir() if is_name(item.name) and item.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
