"""Operations on one replica. To change all replicas, move a label in the store: see `versions.labels`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from cerberank_models.checkpoint.store.protocol import Reference
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.versions.labels import Labels
from cerberank_service.versions.registry import VersionRegistry

logger = logging.getLogger(__name__)


class Operations:
    """The operations of the admin port.

    Methods raise ServiceError: 404 for an unknown version, 409 for an impossible change, 422 for invalid values.
    """

    def __init__(self, versions: VersionRegistry, labels: Labels, changed: Callable[[], None]) -> None:
        """`changed` is called after a version is loaded or unloaded, so that the change takes effect at once."""
        self._versions, self.labels, self._changed = versions, labels, changed

    def load(self, reference: Reference) -> None:
        """Load a version from the store and keep it until `unload`; retry it if it failed. Returns without waiting."""
        self.labels.check(reference)
        self._versions.pin(reference)
        logger.info("operator: load %s@%s", *reference)
        self._changed()

    def unload(self, reference: Reference) -> None:
        """Unload a version that is not named by any label."""
        self._versions.unpin(reference)
        logger.info("operator: unload %s@%s", *reference)
        self._changed()

    def drain(self) -> None:
        """Refuse new questions and report "not ready" until `resume`; accepted questions are still answered."""
        self._versions.drain(True)
        logger.warning("operator: drain")

    def resume(self) -> None:
        """Accept questions again."""
        self._versions.drain(False)
        logger.info("operator: resume")

    def set_schedule(self, model: str, version: str, ratios: float | Sequence[float] | None) -> None:
        """Set the drop schedule for questions without drop ratios of their own, until the version is unloaded.

        `ratios` is one ratio for every exit, one per exit, or None for the checkpoint's own. `version` may be a label.
        """
        live = self._versions.find(model, version, serving=False)
        try:
            schedule = live.checkpoint.config.drop_policy(ratios).ratios
        except ValueError as error:
            raise ServiceError(Kind.INVALID, f"drop_schedule: {error}") from error
        live.schedule = schedule
        logger.info("operator: %s@%s drops %s", *live.reference, list(schedule))

    def stored(self) -> dict[str, dict[str, Any]] | None:
        """The versions and labels of each model in the store; None without a store. Raises ServiceError (503)."""
        return self.labels.stored()
