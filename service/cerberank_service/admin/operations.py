"""Operations on one replica. Changes for all replicas are label moves, see `versions.labels`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from cerberank_models.checkpoint.store.contract import Reference
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.versions.labels import Labels
from cerberank_service.versions.registry import VersionRegistry

logger = logging.getLogger(__name__)


class Operations:
    """Methods raise ServiceError: 404 for an unknown version, 409 for an impossible change, 422 for invalid values."""

    def __init__(self, versions: VersionRegistry, labels: Labels, changed: Callable[[], None]) -> None:
        """`changed` is called after a change, so that it takes effect at once."""
        self._versions, self.labels, self._changed = versions, labels, changed

    def load(self, reference: Reference) -> None:
        """Keep a version of the store loaded until it is unloaded; one that failed is tried again. Does not wait."""
        self.labels.check(reference)
        self._versions.pin(reference)
        logger.info("operator: load %s@%s", *reference)
        self._changed()

    def unload(self, reference: Reference) -> None:
        """Unload a version that no label names."""
        self._versions.unpin(reference)
        logger.info("operator: unload %s@%s", *reference)
        self._changed()

    def drain(self) -> None:
        """Refuse new questions and become not ready, until `resume`; accepted questions are answered."""
        self._versions.drain(True)
        logger.warning("operator: drain")

    def resume(self) -> None:
        """Accept questions again."""
        self._versions.drain(False)
        logger.info("operator: resume")

    def set_schedule(self, model: str, version: str, ratios: float | Sequence[float] | None) -> None:
        """Set the drop schedule of questions without drop ratios, as long as the version is loaded.

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
        """Versions and labels of each model in the store; None without a store. Raises ServiceError (503)."""
        return self.labels.stored()
