"""What an operator does to one replica; what all replicas must follow is a label, see `labels`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from cerberank_models.checkpoint.store.contract import Reference
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.rollout.labels import Labels
from cerberank_service.versions.registry import VersionRegistry

logger = logging.getLogger(__name__)


class Operations:
    """Verbs raise ServiceError: 404 for what is not there, 409 for what cannot be done, 422 for what does not fit."""

    def __init__(self, versions: VersionRegistry, labels: Labels, changed: Callable[[], None]) -> None:
        """`changed` is called so that a verb takes effect at once."""
        self._versions, self.labels, self._changed = versions, labels, changed

    def load(self, reference: Reference) -> None:
        """Keep a version of the store loaded until it is unloaded; one that failed is tried again. Does not wait."""
        self.labels.check(reference)
        self._versions.pin(reference)
        logger.info("operator: load %s@%s", *reference)
        self._changed()

    def unload(self, reference: Reference) -> None:
        """Give back the memory of a version that no label names."""
        self._versions.unpin(reference)
        logger.info("operator: unload %s@%s", *reference)
        self._changed()

    def drain(self) -> None:
        """Answer what was accepted, take nothing new, and be not ready, until `resume`."""
        self._versions.drain(True)
        logger.warning("operator: drain")

    def resume(self) -> None:
        """Take questions again."""
        self._versions.drain(False)
        logger.info("operator: resume")

    def set_schedule(self, model: str, version: str, ratios: float | Sequence[float] | None) -> None:
        """The drop schedule of questions that choose none, as long as the version is loaded.

        One ratio for every exit, or one per exit; None goes back to the checkpoint's own. `version` may be a label.
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
