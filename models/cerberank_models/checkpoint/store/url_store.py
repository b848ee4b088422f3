"""A store behind an fsspec URL, such as `s3://`, on file systems without an atomic rename.

The files of a version are never overwritten, and the manifest is written last. Without it the version does not exist.
If a push was killed, repeating it completes the version.

If two processes push the same version, one succeeds and the other gets an error. This is certain if the file system's
mode "x" is exclusive, as on S3 by If-None-Match. On other file systems, two processes that write the same file at the
same moment may not notice; the manifest's hashes then reject the version when it is pulled.

`labels.json` is one object that is replaced as a whole, so readers see the old or the new content. Moving a label needs
a lease, an object that is created exclusively. So no move is lost, and a move with `only_from` never replaces another
move, unless the holder of the lease stalls for longer than LEASE_SECONDS before it writes. The same holds for
`record.json`.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cerberank_models.checkpoint.atomic import appearing_folder
from cerberank_models.checkpoint.folder import Checkpoint, CheckpointError, check_digest, read_checkpoint
from cerberank_models.checkpoint.manifest import MANIFEST, Manifest
from cerberank_models.checkpoint.regular import BLOCK, SMALL, copy_hashed, file_digest, too_large
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

LEASE_SECONDS = 30.0


class UrlStore:
    """A store below the path `root` of an fsspec file system, which must not cache listings."""

    def __init__(self, filesystem: Any, root: str, *, lease_seconds: float = LEASE_SECONDS) -> None:
        """Keep the path; it is neither read nor created yet."""
        self._lease_seconds = lease_seconds
        self._files = filesystem
        self._root = root.rstrip("/")

    def models(self) -> tuple[str, ...]:
        """The models whose folder holds a version. Raises FileNotFoundError if the address does not exist."""
        if not self._files.exists(self._root):
            raise FileNotFoundError(f"there is nothing at {self._root}")
        return tuple(sorted(name for name in self._names(self._root) if has_versions(self, name)))

    def versions(self, model: str) -> tuple[str, ...]:
        """The versions whose folder holds a manifest."""
        folder = f"{self._root}/{check_model(model)}"
        return natural_order(
            [name for name in self._names(folder) if self._files.isfile(f"{folder}/{name}/{MANIFEST}")]
        )

    def manifest(self, reference: Reference) -> Manifest:
        """Read the version's `manifest.json`."""
        path = f"{self._path(reference)}/{MANIFEST}"
        if (content := self._read(path, CheckpointError)) is None:
            raise missing(self, reference)
        return parse_manifest(content, path)

    def sizes(self, reference: Reference) -> dict[str, int]:
        """Ask the file system for the size of each file."""
        folder, sizes = self._path(reference), {}
        for name in self.manifest(reference).files:
            with suppress(FileNotFoundError, NotADirectoryError):
                sizes[name] = int(self._files.size(f"{folder}/{name}"))
        return sizes

    def labels(self, model: str) -> dict[Label, str]:
        """Read `labels.json`."""
        path = f"{self._root}/{check_model(model)}/{LABELS_FILE}"
        content = self._read(path)
        return {} if content is None else parse_labels(content, path)

    def push(self, checkpoint: Checkpoint) -> Reference:
        """Write every file that does not exist yet, the manifest last."""
        manifest = checkpoint.manifest
        reference = Reference(check_model(checkpoint.config.name), check_version(manifest.version))
        target = self._path(reference)
        manifest_digest = file_digest(checkpoint.path / MANIFEST)
        for name, digest in [*sorted(manifest.files.items()), (MANIFEST, manifest_digest)]:
            self._create(checkpoint.path / name, f"{target}/{name}", digest)
        return reference

    def pull(self, reference: Reference, target: Path) -> Checkpoint:
        """Copy the files that the manifest names, then verify them."""
        source, manifest = self._path(reference), self.manifest(reference)
        with appearing_folder(target) as partial:
            for name in (*sorted(manifest.files), MANIFEST):
                (partial / name).parent.mkdir(parents=True, exist_ok=True)
                self._files.get_file(f"{source}/{name}", str(partial / name))
            copied = read_checkpoint(partial)
        return replace(copied, path=target)

    def move_label(self, model: str, label: Label, version: str | None, *, only_from: str | None = None) -> str | None:
        """Rewrite `labels.json` while holding the lease."""
        if version is not None and version not in self.versions(model):
            raise missing(self, Reference(model, version))
        folder = f"{self._root}/{check_model(model)}"
        with self._lease(f"{folder}/{LABELS_FILE}.lease"):
            labels, before = moved_labels(self.labels(model), label, version, only_from)
            if version != before:
                self._files.pipe_file(f"{folder}/{LABELS_FILE}", render_labels(labels))
        return before

    def record(self, model: str) -> Record:
        """Read `record.json`."""
        path = f"{self._root}/{check_model(model)}/{RECORD_FILE}"
        content = self._read(path)
        return Record() if content is None else parse_record(content, path)

    def note_served(self, reference: Reference) -> None:
        """Rewrite `record.json` while holding the lease, unless the version is the latest one in it."""
        model, version = reference
        if self.record(model).served[:1] == (version,):
            return
        folder = f"{self._root}/{check_model(model)}"
        with self._lease(f"{folder}/{LABELS_FILE}.lease"):
            self._files.pipe_file(f"{folder}/{RECORD_FILE}", render_record(self.record(model).with_served(version)))

    def _create(self, source: Path, path: str, digest: str) -> None:
        """Write `source` to `path` unless `path` exists already. Raises StoreError if `path` has other content.

        What is written is hashed, and removed if it does not have the `digest`, for which ChangedFileError is raised.
        Closing an fsspec file creates the object from the bytes written so far. After an interruption such as Ctrl-C,
        this partial object is removed, so that the push can be repeated. If closing raises FileExistsError, the object
        belongs to another process and is kept.
        """
        # Mode "x", because with `put_file(mode="create")` a file system without exclusive creation would overwrite.
        with suppress(FileExistsError), source.open("rb") as content:
            file = self._files.open(path, "xb")
            try:
                check_digest(source, copy_hashed(content, file), digest)
            except BaseException:
                with suppress(FileExistsError):
                    file.close()
                    self._files.rm_file(path)
                raise
            file.close()
            return
        with self._files.open(path, "rb") as file:
            stored = hashlib.sha256()
            while block := file.read(BLOCK):
                stored.update(block)
        if stored.hexdigest() != digest:
            raise StoreError(f"{path} is there with other content: a version is never changed, push under a new one")

    @contextmanager
    def _lease(self, path: str) -> Iterator[None]:
        own = uuid.uuid4().hex.encode()
        seen, since = None, time.monotonic()
        while True:
            with suppress(FileExistsError):
                with self._files.open(path, "xb") as file:
                    file.write(own)
                break
            holder = self._read(path)
            if holder != seen:
                seen, since = holder, time.monotonic()
            # Measured on this process's clock, because the clocks of machines differ.
            elif time.monotonic() - since > self._lease_seconds:
                with suppress(FileNotFoundError):
                    self._files.rm_file(path)
            time.sleep(0.05)
        try:
            yield
        finally:
            if self._read(path) == own:
                self._files.rm_file(path)

    def _read(self, path: str, refused: type[CheckpointError | StoreError] = StoreError) -> bytes | None:
        """The content of a small file; None if it is missing. Raises `refused` if it is a folder, or too large."""
        try:
            info = self._files.info(path)
            if info["type"] != "file":
                raise refused(f"{path} is not a regular file")
            if info["size"] == 0:  # servers reject an empty range
                return b""
            content: bytes = self._files.cat_file(path, start=0, end=SMALL + 1)  # cut, as some servers state no size
        except FileNotFoundError:
            return None
        if len(content) > SMALL:
            raise refused(str(too_large(path, SMALL)))
        return content

    def _names(self, folder: str) -> list[str]:
        try:
            items = self._files.ls(folder, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        names = [item["name"].rstrip("/").rpartition("/")[2] for item in items if item["type"] == "directory"]
        return [name for name in names if is_name(name)]

    def _path(self, reference: Reference) -> str:
        return f"{self._root}/{check_model(reference.model)}/{check_version(reference.version)}"
