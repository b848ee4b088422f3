"""Moves labels by rule: a shadow that did well becomes stable, a version that fails is taken back."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from cerberank_models.checkpoint.store.contract import Reference
from cerberank_service.errors import ServiceError
from cerberank_service.rollout.labels import Labels
from cerberank_service.rollout.shadow import Shadow
from cerberank_service.rollout.shadow_figures import PromotionRule, Verdict, judge
from cerberank_service.settings import Settings
from cerberank_service.versions.loading import LiveVersion
from cerberank_service.versions.registry import VersionRegistry
from cerberank_service.versions.state import ModelState

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RollbackRule:
    """A version is taken back when more than `percent` of its answers are its own failures; 0 never does."""

    percent: float
    questions: int = 20
    """Before so many, chance decides."""


def fails(rule: RollbackRule, *, answered: int, failed: int, alive: bool) -> bool:
    """Whether a version must be taken back: `failed` of `answered` + `failed` questions, or a dead engine."""
    if not rule.percent:
        return False
    asked = answered + failed
    return not alive or (asked >= rule.questions and 100.0 * failed > rule.percent * asked)


class Rules:
    """Looked at by the watcher after each turn."""

    def __init__(self, settings: Settings, versions: VersionRegistry, shadow: Shadow, labels: Labels) -> None:
        """The settings state the rules."""
        self._versions, self._shadow, self._labels = versions, shadow, labels
        self._taken_back: set[Reference] = set()
        self._rollback = RollbackRule(settings.rollback_failure_percent)
        self.promotion = PromotionRule(questions=settings.promote_after)

    def apply(self) -> None:
        """Take back what fails, or else promote what did well. A store that is away is asked again next time."""
        for model, known in sorted(self._versions.snapshot.models.items()):
            try:
                self._take_back(model, known) or self._promote(model)
            except ServiceError as error:
                logger.warning("a rule could not move a label of %s: %s", model, error.message)

    def _take_back(self, model: str, known: ModelState) -> bool:
        canary = known.labelled("canary")
        if canary is not None and self._fails(canary):
            logger.error("canary %s@%s fails and is taken back by rule", *canary.reference)
            self._labels.move(model, "canary", None, only_from=canary.reference.version)
            self._taken_back.add(canary.reference)
            return True
        stable, previous = known.labelled("stable"), known.previous
        # Never back to what was taken back before: two bad versions would take turns for ever.
        if stable is None or previous is None or Reference(model, previous) in self._taken_back:
            return False
        if self._fails(stable):
            logger.error("%s@%s fails, %s is stable again by rule", *stable.reference, previous)
            self._taken_back.add(stable.reference)
            self._labels.rollback(model)
            return True
        return False

    def _fails(self, live: LiveVersion) -> bool:
        return fails(self._rollback, answered=live.answered, failed=live.failed, alive=live.engine.alive)

    def _promote(self, model: str) -> bool:
        figures = self._shadow.figures(model)
        if figures is None or Reference(model, figures.shadow) in self._taken_back:
            return False
        verdict, why = judge(figures, self.promotion)
        if verdict is Verdict.PROMOTE:
            logger.info("%s@%s becomes stable by rule: %s", model, figures.shadow, why)
            self._labels.promote(model, figures.shadow)
        return verdict is Verdict.PROMOTE
