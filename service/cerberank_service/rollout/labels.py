"""Moves labels in the store, for operators and rules; every service that follows the store adopts the move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cerberank_models.checkpoint.store.contract import (
    NotInStoreError,
    Reference,
    Store,
    StoreError,
    check_label,
    check_model,
    check_version,
    missing,
)
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.versions.registry import VersionRegistry


class Labels:
    """Raises ServiceError: 404 for an unknown model or version, 409 for an impossible move, 503 without the store."""

    def __init__(self, store: Store | None, versions: VersionRegistry, moved: Callable[[], None]) -> None:
        """`moved` is called after every move, so that this replica adopts it at once."""
        self._store, self._versions, self._moved = store, versions, moved

    def move(self, model: str, label: str, version: str | None, *, only_from: str | None = None) -> str | None:
        """Move `label` to `version`, or remove it (None); returns its version before.

        With `only_from` the label is moved only from that version, and left alone if it was moved meanwhile.
        """
        with self._reaching() as store:
            named = check_label(label)
            if only_from is not None and store.labels(check_model(model)).get(named) != only_from:
                return None
            before = store.move_label(check_model(model), named, None if version is None else check_version(version))
        self._moved()
        return before

    def rollback(self, model: str) -> str:
        """Move `stable` back to the previous version, which is still loaded; returns that version.

        Raises ServiceError (409) also when the label in the store no longer names the version that serves.
        """
        known = self._versions.snapshot.model(model)
        stable, previous = known.serving.get("stable"), known.previous
        if stable is None or previous is None:
            raise ServiceError(
                Kind.CONFLICT, f"there is no version before the stable one of {model[:100]} to go back to"
            )
        if self.move(model, "stable", previous, only_from=stable) is None:
            raise ServiceError(
                Kind.CONFLICT,
                f"stable stands for another version of {model[:100]} than {stable}, which serves: "
                "move the label instead",
            )
        return previous

    def promote(self, model: str, version: str) -> None:
        """Move `stable` to the shadow `version`, and remove `shadow`."""
        self.move(model, "stable", version)
        self.move(model, "shadow", None, only_from=version)

    def check(self, reference: Reference) -> None:
        """Raises ServiceError (404) when the store does not have the version."""
        with self._reaching() as store:
            if check_version(reference.version) not in store.versions(check_model(reference.model)):
                raise missing(store, reference)

    def stored(self) -> dict[str, dict[str, Any]] | None:
        """Versions and labels of each model in the store; None without a store."""
        if self._store is None:
            return None
        with self._reaching() as store:
            return {
                model: {"versions": list(store.versions(model)), "labels": store.labels(model)}
                for model in store.models()
            }

    @contextmanager
    def _reaching(self) -> Iterator[Store]:
        if self._store is None:
            raise ServiceError(Kind.CONFLICT, "this service follows no store: set CERBERANK_STORE")
        try:
            yield self._store
        except NotInStoreError as error:
            raise ServiceError(Kind.NOT_FOUND, str(error)) from error
        except StoreError as error:
            raise ServiceError(Kind.CONFLICT, str(error)) from error
        except OSError as error:
            raise ServiceError(Kind.UNAVAILABLE, "the store cannot be reached", retry_after=5) from error
