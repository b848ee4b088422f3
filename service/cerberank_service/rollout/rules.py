"""Moves labels by rule: promotes a shadow version within its limits, rolls a failing version back.

A label moves only from the version that the rule has looked at. Versions that were taken back are recorded in the
store, so that two replicas cannot swap two bad versions for ever. A replica that stops or drains moves nothing: its
engines end although their versions are sound.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

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
    """Roll a version back when more than `percent` of its questions end in internal errors; 0 switches this off."""

    percent: float
    questions: int = 20
    """Least number of questions: with fewer the percentage is not significant."""


def fails(rule: RollbackRule, *, answered: int, failed: int, alive: bool) -> bool:
    """Whether a version must be rolled back, for its share of `failed` questions or its engine, if not `alive`."""
    if not rule.percent:
        return False
    asked = answered + failed
    return not alive or (asked >= rule.questions and 100.0 * failed > rule.percent * asked)


class Rules:
    """The rules, which the watcher applies after each poll."""

    def __init__(self, settings: Settings, versions: VersionRegistry, shadow: Shadow, labels: Labels) -> None:
        """The settings contain the limits of the rules."""
        self._versions, self._shadow, self._labels = versions, shadow, labels
        self._rollback = RollbackRule(settings.rollback_failure_percent)
        self.promotion = PromotionRule(questions=settings.promote_after)

    def apply(self) -> None:
        """For each model, roll a failing version back or else promote its shadow. Store errors are retried later."""
        if self._resting:
            return
        for model, known in sorted(self._versions.snapshot.models.items()):
            try:
                self._roll_back(model, known) or self._promote(model)
            except ServiceError as error:
                logger.warning("a rule could not move a label of %s: %s", model, error.message)

    def _roll_back(self, model: str, known: ModelState) -> bool:
        canary = known.labelled("canary")
        if canary is not None and self._fails(canary):
            self._labels.move(model, "canary", None, only_from=canary.reference.version, taken_back=True)
            logger.error("canary %s@%s failed and was rolled back by rule", *canary.reference)
            return True
        stable, previous = known.labelled("stable"), known.previous
        if stable is None or previous is None or not self._fails(stable):
            return False
        # Never to a version that was itself taken back: two failing versions would alternate for ever.
        if previous in self._labels.taken_back(model):
            return False
        self._labels.move(model, "stable", previous, only_from=stable.reference.version, taken_back=True)
        logger.error("%s@%s failed and was rolled back to %s by rule", *stable.reference, previous)
        return True

    @property
    def _resting(self) -> bool:
        snapshot = self._versions.snapshot
        return snapshot.stopped or snapshot.draining or snapshot.leaving

    def _fails(self, live: LiveVersion) -> bool:
        failed = fails(self._rollback, answered=live.answered, failed=live.failed, alive=live.engine.alive)
        return failed and not self._resting  # read last: a replica says that it stops before its engines end

    def _promote(self, model: str) -> bool:
        figures = self._shadow.figures(model)
        if figures is None:
            return False
        verdict, why = judge(figures, self.promotion)
        if verdict is not Verdict.PROMOTE or figures.shadow in self._labels.taken_back(model):
            return False
        self._labels.promote(model, stable=figures.stable, shadow=figures.shadow)
        logger.info("%s@%s was promoted to stable by rule: %s", model, figures.shadow, why)
        return True
