"""Moves labels in the store, for operators; every service that follows the store adopts the move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cerberank_models.checkpoint.store.checkpoint_store import (
    CheckpointStore,
    NotInStoreError,
    Reference,
    StoreError,
    check_label,
    check_model,
    check_version,
)
from cerberank_service.engine.faults import text_of
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.versions.registry import VersionRegistry


class Labels:
    """The labels of the store.

    Methods raise ServiceError: 404 for an unknown model or version, 409 for an impossible move or without a store, and
    503 if the store cannot be reached.
    """

    def __init__(self, store: CheckpointStore | None, versions: VersionRegistry, moved: Callable[[], None]) -> None:
        """`moved` is called after every move, so that this replica adopts the move at once."""
        self._store = store
        self._versions = versions
        self._moved = moved

    def move(self, model: str, label: str, version: str | None, *, only_from: str | None = None) -> str | None:
        """Move `label` to `version`, or remove it (None); returns its old version. See `Store.move_label`."""
        with self._reaching() as store:
            before = store.move_label(
                check_model(model),
                check_label(label),
                None if version is None else check_version(version),
                only_from=only_from,
            )
        self._moved()
        return before

    def rollback(self, model: str) -> tuple[str, str]:
        """Move `stable` back; returns its old and its new version.

        Usually the label moves from the serving version to the previous one, which is still loaded. If the store's
        label names a version that does not serve here, because it was rejected or is loading, the label moves to the
        version that serves. A second rollback is refused (409): it would return to the version that the first one left.
        """
        state = self._versions.snapshot.model(model)
        serving, previous = state.serving.get("stable"), state.previous
        with self._reaching() as store:  # the labels of the last poll may be out of date
            wanted = store.labels(check_model(model)).get("stable", serving)
        if serving is not None and wanted is not None and wanted != serving and not state.is_ready(wanted):
            before, target = wanted, serving
        elif serving is not None and previous is not None:
            before, target = serving, previous
        else:
            raise ServiceError(
                Kind.CONFLICT,
                f"this replica knows no earlier stable version of {model[:100]} to go back to; move the label to a "
                f"version: cerberank admin label {model[:100]} stable VERSION",
            )
        self.move(model, "stable", target, only_from=before)
        return before, target

    def check(self, reference: Reference) -> None:
        """Raises ServiceError (404) when the store does not have the version."""
        with self._reaching() as store:
            if check_version(reference.version) not in store.versions(check_model(reference.model)):
                raise store.missing(reference)

    def stored(self) -> dict[str, dict[str, Any]] | None:
        """The versions and labels of each model in the store; None without a store."""
        if self._store is None:
            return None
        with self._reaching() as store:
            return {
                model: {"versions": list(store.versions(model)), "labels": store.labels(model)}
                for model in store.models()
            }

    @contextmanager
    def _reaching(self) -> Iterator[CheckpointStore]:
        if self._store is None:
            raise ServiceError(Kind.CONFLICT, "this service follows no store: set CERBERANK_STORE")
        try:
            self._store.models()  # raises if the store is away, where labels and versions look as if there were none
            yield self._store
        except NotInStoreError as error:
            raise ServiceError(Kind.NOT_FOUND, text_of(error)) from error
        except StoreError as error:
            raise ServiceError(Kind.CONFLICT, text_of(error)) from error
        except OSError as error:
            raise ServiceError(Kind.UNAVAILABLE, f"the store cannot be read: {error}", retry_after=5) from error
