"""Mirrors a share of the questions to the `shadow` version after they are answered, and compares the rankings.

Mirroring runs in one thread with a short queue. A question is mirrored only if the stable version's engine is idle;
otherwise it is skipped. A mirrored question has the lowest priority and runs in short steps, each of which waits until
the stable engine is idle. A question that the shadow version refuses, for example because its list of drop ratios fits
other stages, counts as skipped. Errors of the shadow never reach a client.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import Scores
from cerberank_models.encoding import NO_PAIRS
from cerberank_service.engine.admission import LAST_PRIORITY
from cerberank_service.engine.low_priority import LiveTraffic
from cerberank_service.engine.work import Ranked, Work
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.ranking.pipeline import Question
from cerberank_service.settings import Settings
from cerberank_service.telemetry import series
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.versions.loading import LiveVersion
from cerberank_service.versions.registry import VersionRegistry

logger = logging.getLogger(__name__)

LONGEST_QUEUE = 8
LONGEST_SECONDS = 30.0
"""Seconds after which a mirrored question without a ranking counts as failed."""


class Shadow:
    """Mirrors questions and keeps the figures of each model's shadow version."""

    def __init__(self, settings: Settings, versions: VersionRegistry, metrics: Metrics) -> None:
        """Nothing runs before `start`."""
        self._versions = versions
        self._metrics = metrics
        self._share = settings.shadow_percent / 100.0
        self._queue: queue.Queue[Question | None] = queue.Queue(LONGEST_QUEUE)
        self._stopped = threading.Event()
        self._figures: dict[str, ShadowFigures] = {}
        self._thread = threading.Thread(target=self._run, name="shadow", daemon=True)

    def start(self) -> None:
        """Start mirroring."""
        self._thread.start()

    def stop(self) -> None:
        """Stop mirroring. Does not wait."""
        self._stopped.set()
        with suppress(queue.Full):
            self._queue.put_nowait(None)

    def figures(self, model: str) -> ShadowFigures | None:
        """The figures of a model's current stable and shadow versions; None unless it has both."""
        pair = self._versions.snapshot.stable_and_shadow(model)
        if pair is None:
            return None
        stable, shadow = (live.reference.version for live in pair)
        figures = self._figures.get(model)
        if figures is None or (figures.stable, figures.shadow) != (stable, shadow):
            figures = self._figures[model] = ShadowFigures(stable, shadow)
            self._metrics.for_shadow(model, shadow)
        return figures

    def offer(self, question: Question, *, complete: bool) -> None:
        """Offer for mirroring a question that has been answered, `complete` or not. Never blocks."""
        live = question.live
        figures = self.figures(live.reference.model)
        if figures is None or figures.stable != live.reference.version or not complete:
            return
        if not question.prepared.candidates:
            return
        if random.random() >= self._share:
            return
        if self._busy(live) or self._queue.full():
            self._skip(figures, live.reference.model)
        else:
            # Without its pairs, which a comparison does not need and whose tokens would take memory while it waits.
            prepared = replace(question.prepared, pairs=NO_PAIRS)
            with suppress(queue.Full):
                self._queue.put_nowait(replace(question, prepared=prepared))

    def _run(self) -> None:
        while (question := self._queue.get()) is not None and not self._stopped.is_set():
            try:
                self._mirror(question)
            except Exception:  # the next question may succeed
                logger.exception("a mirrored question could not be compared")

    def _mirror(self, question: Question) -> None:
        stable = question.live
        model, figures = stable.reference.model, self.figures(stable.reference.model)
        if figures is None or figures.stable != stable.reference.version:
            return  # a label has moved meanwhile
        if self._busy(stable):
            self._skip(figures, model)
            return
        with self._versions.lease() as lease:  # until all is counted, or series of an unloaded version would reappear
            try:
                shadow = lease.take(f"{model}@{figures.shadow}", None, question.prepared.call.question)
                mirrored = self._ask(shadow, question)
            except ServiceError as error:
                if error.kind is Kind.INTERNAL:
                    figures.failures += 1
                    self._metrics[series.SHADOW_FAILURES].labels(model, figures.shadow).inc()
                else:  # not a failure of the shadow: the drop ratios do not fit its stages, or it had no time
                    self._skip(figures, model)
                return
            self._compare(model, figures, question, mirrored)

    def _compare(self, model: str, figures: ShadowFigures, question: Question, mirrored: Question) -> None:
        ours, theirs = question.ranking(), mirrored.ranking()
        compared = compare(ours.order, ours.scores, theirs.order, theirs.scores)
        figures.add(compared, stable_seconds=question.compute_seconds, shadow_seconds=mirrored.compute_seconds)
        metrics, of = self._metrics, (model, figures.shadow)
        metrics[series.SHADOW_QUESTIONS].labels(*of).inc()
        metrics[series.SHADOW_FLIPS].labels(*of).inc(compared.flipped)
        metrics[series.SHADOW_OVERLAP].labels(*of).inc(compared.overlap)
        metrics[series.SHADOW_STABLE_SECONDS].labels(*of).inc(max(0.0, question.compute_seconds))
        metrics[series.SHADOW_SECONDS].labels(*of).inc(max(0.0, mirrored.compute_seconds))

    def _ask(self, shadow: LiveVersion, question: Question) -> Question:
        """The question as the shadow version ranks it. Raises ServiceError, INTERNAL for a failure of the version."""
        # The caches are not used, because mirrored questions would evict entries of clients' requests.
        call = replace(question.prepared.call, priority=LAST_PRIORITY)
        mirrored = Question.read(call, shadow, received=time.monotonic()).begun()
        while mirrored.work is not None:
            mirrored = mirrored.after(self._ranked(shadow, mirrored.work, question.live))
        return mirrored

    def _ranked(self, shadow: LiveVersion, work: Work, stable: LiveVersion) -> Ranked:
        """The shadow engine's result for a work, which waits while the stable version is busy. Raises as `_ask`."""
        traffic = LiveTraffic(partial(self._busy, stable))
        ticket = shadow.engine.submit(replace(work, received=time.monotonic()), live_traffic=traffic)
        try:
            outcome = ticket.outcome.result(LONGEST_SECONDS)
        except TimeoutError as error:
            kind = Kind.UNAVAILABLE if traffic.waited > LONGEST_SECONDS / 2 else Kind.INTERNAL
            raise ServiceError(kind, "the shadow did not answer in time") from error
        finally:
            shadow.engine.cancel(ticket.key)
        if isinstance(outcome, ServiceError):
            raise outcome
        return outcome

    @staticmethod
    def _busy(live: LiveVersion) -> bool:
        return live.engine.queued_tokens > 0

    def _skip(self, figures: ShadowFigures, model: str) -> None:
        figures.skipped += 1
        self._metrics[series.SHADOW_SKIPPED].labels(model, figures.shadow).inc()


PERSISTENCE = 0.9
"""The parameter p of rank-biased overlap: the probability that a reader continues to the next rank. With 0.9 the first
ten ranks have a weight of 86 %."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The differences between the rankings of two versions."""

    flipped: bool
    """True if another candidate comes first."""
    overlap: float
    """Rank-biased overlap; 1 for equal orders."""
    shift: float
    """Mean absolute difference of the candidates' scores, each at the last stage that the candidate reached. Those
    that a lexical layer dropped have no score, and are left out."""


def compare(
    order: NDArray[np.int64], scores: Scores, other_order: NDArray[np.int64], other_scores: Scores
) -> Comparison:
    """Compare two rankings of the same candidates; orders hold every candidate once, best first."""
    scored = ~(np.isnan(scores) | np.isnan(other_scores))
    return Comparison(
        flipped=bool(order[0] != other_order[0]),
        overlap=rank_biased_overlap(order, other_order),
        shift=float(np.abs(scores - other_scores)[scored].mean()) if scored.any() else 0.0,
    )


def rank_biased_overlap(
    order: NDArray[np.int64], other: NDArray[np.int64], *, persistence: float = PERSISTENCE
) -> float:
    """RBO_ext of two whole orders of the same items (Webber, Moffat and Zobel 2010, eq. 32 at equal depths), 0..1.

    >>> rank_biased_overlap(np.array([0, 1, 2]), np.array([0, 1, 2]))
    1.0
    """
    count = len(order)
    deepest = np.empty(count, dtype=np.int64)
    deepest[order] = np.arange(count)
    deepest[other] = np.maximum(deepest[other], np.arange(count))
    depth = np.arange(1, count + 1)
    agreement = np.cumsum(np.bincount(deepest, minlength=count)) / depth
    weights = persistence**depth
    total = agreement[-1] * weights[-1] + (1.0 - persistence) / persistence * float(agreement @ weights)
    return min(1.0, float(total))


@dataclass(slots=True)
class ShadowFigures:
    """Sums over the questions that were mirrored from `stable` to `shadow`."""

    stable: str
    shadow: str
    questions: int = 0
    flips: int = 0
    overlap: float = 0.0
    shift: float = 0.0
    stable_seconds: float = 0.0
    shadow_seconds: float = 0.0
    failures: int = 0
    """Questions that only the shadow failed to answer."""
    skipped: int = 0
    """Questions that were not mirrored because the service was busy or the shadow refused them."""

    def add(self, comparison: Comparison, *, stable_seconds: float, shadow_seconds: float) -> None:
        """Add one mirrored question."""
        self.questions += 1
        self.flips += comparison.flipped
        self.overlap += comparison.overlap
        self.shift += comparison.shift
        self.stable_seconds += stable_seconds
        self.shadow_seconds += shadow_seconds

    def describe(self) -> dict[str, Any]:
        """Counts, and means over all mirrored questions; the means are None before the first question."""
        count = self.questions
        ratio = self.shadow_seconds / self.stable_seconds if self.stable_seconds > 0 else 1.0
        return {
            "stable": self.stable,
            "shadow": self.shadow,
            "questions": count,
            "flips": self.flips,
            "failures": self.failures,
            "skipped": self.skipped,
            "flip_percent": 100.0 * self.flips / count if count else None,
            "rank_biased_overlap": self.overlap / count if count else None,
            "score_shift": self.shift / count if count else None,
            "latency_ratio": ratio if count else None,
        }
