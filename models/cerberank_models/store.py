"""The class `cerberank.Store`: a store of checkpoints, whose versions are named as in commands, `model@label`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cerberank_models.checkpoint.atomic import remove_remains
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.store.checkpoint_store import LABELS, Reference, check_label, check_model
from cerberank_models.checkpoint.store.open_store import open_store
from cerberank_models.convert.checkpoint_cache import made_checkpoint, open_cache

LEFT_OVER_SECONDS = 3600.0
"""The age in seconds at which a hidden folder is taken for the remains of a killed pull; no pull takes as long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredVersion:
    """A version of a model in a store."""

    model: str
    version: str
    labels: tuple[str, ...]
    created: str
    source: str
    """The training run, model or command that produced the version."""
    metrics: Mapping[str, float]

    @property
    def name(self) -> str:
        """`model@version`."""
        return f"{self.model}@{self.version}"


class Store:
    """A store in a folder, or behind an fsspec URL such as `s3://bucket/models` (extra `url` or `s3`).

    Every method may raise StoreError if the store rejects the call, CheckpointError for an incomplete or damaged
    checkpoint, and OSError if the store cannot be reached.
    """

    def __init__(self, address: str | Path) -> None:
        """Open a store, which need not exist yet. Raises StoreError for a URL whose library is not installed."""
        self.address = str(address)
        self._store = open_store(self.address)

    def models(self) -> tuple[str, ...]:
        """The models that have at least one version, in alphabetical order."""
        return self._store.models()

    def versions(self, model: str) -> tuple[StoredVersion, ...]:
        """The versions of a model, in natural order; empty for an unknown model."""
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
        """Verify the folder `checkpoint`, add it as a version, and move `label` to it; returns `model@version`.

        Pushing the same checkpoint again is not an error. Raises StoreError if another checkpoint has this version.
        """
        wanted = None if label is None else check_label(label)
        reference = self._store.push(read_checkpoint(Path(checkpoint), hashed=False))
        if wanted is not None:
            self._store.move_label(reference.model, wanted, reference.version)
        return f"{reference.model}@{reference.version}"

    def pull(self, name: str, folder: str | Path) -> str:
        """Copy `model`, `model@label` or `model@version` to a new folder and verify it; returns `model@version`."""
        reference = self._store.resolve(name)
        target = Path(folder).absolute()
        remove_remains(target.parent, target.name, older_than=LEFT_OVER_SECONDS)
        self._store.pull(reference, target)
        return f"{reference.model}@{reference.version}"

    def move_label(self, model: str, label: str, version: str | None) -> str | None:
        """Move a label to a version, or remove the label (None); returns the version that it pointed to."""
        return self._store.move_label(check_model(model), check_label(label), version)

    def cached(self, name: str, cache: Path | None = None) -> Path:
        """A verified copy of `model`, `model@label` or `model@version` below `cache` (`open_cache`), pulled if needed.

        If several processes need the same copy, one pulls it and the others wait. A damaged copy is pulled again.
        """
        reference = self._store.resolve(name)
        digest = hashlib.sha256(self._store.manifest(reference).model_dump_json().encode()).hexdigest()[:16]
        path = open_cache(cache) / f"{reference.model}-{reference.version}-{digest}"
        return made_checkpoint(path, partial(self._store.pull, reference))
