"""Reads a store for `lifecycle`: its labels, and the estimated memory of the versions that the labels name."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable

from cerberank_models.checkpoint.folder import CheckpointError
from cerberank_models.checkpoint.store.checkpoint_store import (
    CheckpointStore,
    Label,
    NotInStoreError,
    Reference,
    StoreError,
)
from cerberank_service.engine.faults import text_of
from cerberank_service.settings import Settings
from cerberank_service.versions.lifecycle import StoredModel
from cerberank_service.versions.memory_budget import version_bytes

logger = logging.getLogger(__name__)


class StoreView:
    """Caches the sizes of versions, which never change, and the last labels that could be read."""

    def __init__(self, store: CheckpointStore, settings: Settings) -> None:
        """Read nothing yet."""
        self._store = store
        self._settings = settings
        self._sizes: dict[Reference, int] = {}
        self._labels: dict[str, dict[Label, str]] = {}
        self._problems: dict[str | Reference, str] = {}

    @property
    def problems(self) -> list[str]:
        """The problems of models and versions that could not be read the last time."""
        return list(self._problems.values())

    def read(self, pinned: Iterable[Reference], served: Container[str]) -> dict[str, StoredModel]:
        """The models of the store. Raises OSError, or an error of a store's library, while the store is unreachable.

        For models that are not in `served`, the versions that served before are read too, to stand in for the stable
        one. A model whose `labels.json` cannot be read keeps its last labels. The store counts as unreachable if the
        labels of all models cannot be read for reasons other than faults in the files. It also counts as unreachable
        if it had models and is empty now, because a folder whose disk is unmounted looks empty.
        """
        labels: dict[str, dict[Label, str]] = {}
        problems: dict[str | Reference, str] = {}
        models, unreachable = self._store.models(), list[Exception]()
        if self._labels and not models:
            raise OSError("it had models and has none now")
        for model in models:
            try:
                labels[model] = self._store.labels(model)
            except Exception as error:  # libraries of stores raise their own types
                if not isinstance(error, StoreError):
                    unreachable.append(error)
                if model in self._labels:
                    labels[model] = self._labels[model]
                problems[model] = f"the labels of {model} cannot be read: {text_of(error)}"
        if models and len(unreachable) == len(models):
            raise unreachable[0]
        self._labels = labels
        last = {model: self._served(model) for model in labels if model not in served}
        wanted = {Reference(model, version) for model, each in labels.items() for version in each.values()}
        wanted.update(Reference(model, version) for model, each in last.items() for version in each)
        wanted.update(pinned)
        sizes = {}
        for reference in wanted:
            try:
                if (size := self._size(reference)) is not None:
                    sizes[reference] = size
            except Exception as error:  # libraries of stores raise their own types
                problems[reference] = f"{'@'.join(reference)} cannot be read: {text_of(error)}"
        self._sizes = sizes
        for place, problem in problems.items():
            if self._problems.get(place) != problem:
                logger.warning("%s", problem)
        self._problems = problems
        return {
            model: StoredModel(
                labels=labels.get(model, {}),
                served=last.get(model, ()),
                sizes={ref.version: size for ref, size in self._sizes.items() if ref.model == model},
            )
            for model in {*labels, *(reference.model for reference in self._sizes)}
        }

    def _served(self, model: str) -> tuple[str, ...]:
        try:
            return self._store.record(model).served
        except Exception as error:  # any error is tolerable: only replicas without a stable version need the record
            logger.warning("the versions that served before are not known: %s", text_of(error))
            return ()

    def _size(self, reference: Reference) -> int | None:
        """Estimated memory in bytes; None if the version does not exist.

        The value is 0 for an invalid manifest; the error is reported when the version is copied.
        """
        if reference in self._sizes:
            return self._sizes[reference]
        try:
            sizes = self._store.sizes(reference)
        except NotInStoreError:
            return None
        except CheckpointError:
            return 0
        return version_bytes(self._settings, sizes)
