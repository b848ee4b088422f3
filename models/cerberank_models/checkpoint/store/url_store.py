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
from cerberank_models.checkpoint.store.checkpoint_store import (
    LABELS_FILE,
    CheckpointStore,
    Reference,
    StoreError,
    is_name,
)

LEASE_SECONDS = 30.0


class UrlStore(CheckpointStore):
    """A store below the path `root` of an fsspec file system, which must not cache listings."""

    def __init__(self, filesystem: Any, root: str, *, lease_seconds: float = LEASE_SECONDS) -> None:
        """Keep the path; it is neither read nor created yet."""
        self._lease_seconds = lease_seconds
        self._files = filesystem
        self._root = root.rstrip("/")

    def _check_exists(self) -> None:
        if not self._files.exists(self._root):
            raise FileNotFoundError(f"there is nothing at {self._root}")

    def _folders(self, path: str) -> list[str]:
        try:
            items = self._files.ls(self._place(path), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        names = [item["name"].rstrip("/").rpartition("/")[2] for item in items if item["type"] == "directory"]
        return [name for name in names if is_name(name)]

    def _is_file(self, path: str) -> bool:
        return bool(self._files.isfile(self._place(path)))

    def _size(self, path: str) -> int | None:
        try:
            return int(self._files.size(self._place(path)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _read(self, path: str, refused: type[CheckpointError | StoreError] = StoreError) -> bytes | None:
        place = self._place(path)
        try:
            info = self._files.info(place)
            if info["type"] != "file":
                raise refused(f"{place} is not a regular file")
            if info["size"] == 0:  # servers reject an empty range
                return b""
            content: bytes = self._files.cat_file(place, start=0, end=SMALL + 1)  # cut, as some servers state no size
        except FileNotFoundError:
            return None
        if len(content) > SMALL:
            raise refused(str(too_large(place, SMALL)))
        return content

    def _place(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _replace(self, path: str, content: bytes) -> None:
        self._files.pipe_file(self._place(path), content)

    def _add(self, checkpoint: Checkpoint, reference: Reference) -> None:
        """Write every file that does not exist yet, the manifest last."""
        manifest, target = checkpoint.manifest, self._place("/".join(reference))
        manifest_digest = file_digest(checkpoint.path / MANIFEST)
        for name, digest in [*sorted(manifest.files.items()), (MANIFEST, manifest_digest)]:
            self._create(checkpoint.path / name, f"{target}/{name}", digest)

    def _copy(self, manifest: Manifest, path: str, target: Path) -> Checkpoint:
        """Copy the files that the manifest names, then verify them."""
        with appearing_folder(target) as partial:
            for name in (*sorted(manifest.files), MANIFEST):
                (partial / name).parent.mkdir(parents=True, exist_ok=True)
                self._files.get_file(f"{self._place(path)}/{name}", str(partial / name))
            copied = read_checkpoint(partial)
        return replace(copied, path=target)

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
    def _locked(self, model: str) -> Iterator[None]:
        """Hold the lease, or wait for its holder."""
        lease = f"{model}/{LABELS_FILE}.lease"
        place, own = self._place(lease), uuid.uuid4().hex.encode()
        seen, since = None, time.monotonic()
        while True:
            with suppress(FileExistsError):
                with self._files.open(place, "xb") as file:
                    file.write(own)
                break
            holder = self._read(lease)
            if holder != seen:
                seen, since = holder, time.monotonic()
            # Measured on this process's clock, because the clocks of machines differ.
            elif time.monotonic() - since > self._lease_seconds:
                with suppress(FileNotFoundError):
                    self._files.rm_file(place)
            time.sleep(0.05)
        try:
            yield
        finally:
            if self._read(lease) == own:
                self._files.rm_file(place)
