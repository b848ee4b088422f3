"""A store of checkpoints by its address: versions and labels are named as on the command line, `model@label`."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from cerberank_models.checkpoint.atomic import remove_remains
from cerberank_models.checkpoint.errors import CheckpointError
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.store.contract import LABELS, Reference, check_label, check_model, resolve
from cerberank_models.checkpoint.store.open import open_store

LEFT_OVER_SECONDS = 3600.0
"""A hidden folder older than this is the remains of a killed pull; no pull takes so long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredVersion:
    """A version of a model in a store."""

    model: str
    version: str
    labels: tuple[str, ...]
    created: str
    source: str
    """The run, the model or the command that it comes from."""
    metrics: Mapping[str, float]

    @property
    def name(self) -> str:
        """`model@version`."""
        return f"{self.model}@{self.version}"


class Store:
    """A store in a folder, or behind an fsspec URL such as `s3://bucket/models` (extra `url` or `s3`).

    Errors of every method: StoreError for what the store rejects, CheckpointError for a checkpoint that is not whole,
    OSError where the store cannot be reached.
    """

    def __init__(self, address: str | Path) -> None:
        """The store need not exist yet. Raises StoreError for a kind of URL whose library is not installed."""
        self.address = str(address)
        self._store = open_store(self.address)

    def models(self) -> tuple[str, ...]:
        """The models with a version, in alphabetical order."""
        return self._store.models()

    def versions(self, model: str) -> tuple[StoredVersion, ...]:
        """The versions of a model, in natural order; none for an unknown model."""
        labels = self._store.labels(check_model(model))
        versions = []
        for version in self._store.versions(model):
            manifest = self._store.manifest(Reference(model, version))
            versions.append(
                StoredVersion(
                    model=model,
                    version=version,
                    labels=tuple(name for name in LABELS if labels.get(name) == version),
                    created=manifest.created,
                    source=manifest.source,
                    metrics=manifest.metrics,
                )
            )
        return tuple(versions)

    def push(self, checkpoint: str | Path, *, label: str | None = None) -> str:
        """Verify the folder `checkpoint`, add it as a version, then move a label to it; returns `model@version`.

        The same checkpoint again is not an error; another one under a version that exists is one.
        """
        wanted = None if label is None else check_label(label)
        reference = self._store.push(read_checkpoint(Path(checkpoint)))
        if wanted is not None:
            self._store.move_label(reference.model, wanted, reference.version)
        return f"{reference.model}@{reference.version}"

    def pull(self, name: str, folder: str | Path) -> str:
        """Copy `model`, `model@label` or `model@version` to a new folder and verify it; returns `model@version`."""
        reference = resolve(self._store, name)
        target = Path(folder).absolute()
        remove_remains(target.parent, target.name, older_than=LEFT_OVER_SECONDS)
        self._store.pull(reference, target)
        return f"{reference.model}@{reference.version}"

    def move_label(self, model: str, label: str, version: str | None) -> str | None:
        """Point a label to a version, or remove it (None); returns the version before."""
        return self._store.move_label(check_model(model), check_label(label), version)

    def cached(self, name: str, cache: Path) -> Path:
        """A verified copy of `model`, `model@label` or `model@version` below the folder `cache`, pulled if need be.

        Of several processes one pulls and the others wait; a damaged copy is pulled again.
        """
        reference = resolve(self._store, name)
        digest = hashlib.sha256(self._store.manifest(reference).model_dump_json().encode()).hexdigest()[:16]
        path = cache / f"{reference.model}-{reference.version}-{digest}"
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            try:
                read_checkpoint(path)
            except CheckpointError:
                shutil.rmtree(path, ignore_errors=True)
                self._store.pull(reference, path)
        return path
