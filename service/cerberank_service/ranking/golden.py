"""Asks every loaded version its golden questions once an hour, as a client of the lowest priority.

A version that reproduced its scores when it was loaded may give others later, for example on a GPU whose memory fails.
Versions with a first stage are left out: their golden questions are for the stages of pairs alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

import numpy as np

from cerberank_models.golden import golden_tolerance, recorded_scores
from cerberank_models.ranking.call import RankCall
from cerberank_service.engine.admission import LAST_PRIORITY
from cerberank_service.engine.low_priority import LiveTraffic
from cerberank_service.errors import ServiceError
from cerberank_service.ranking.pipeline import Question
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.telemetry.series import GOLDEN_DEVIATION
from cerberank_service.versions.loading import LiveVersion
from cerberank_service.versions.registry import VersionRegistry

logger = logging.getLogger(__name__)

SECONDS = 3600.0
"""Seconds between two checks."""
LONGEST_SECONDS = 60.0
"""Seconds after which a golden question without a ranking is given up until the next check."""


class GoldenChecks:
    """The checks of one app, in a thread of their own."""

    def __init__(self, versions: VersionRegistry, metrics: Metrics) -> None:
        """Nothing runs before `start`."""
        self._versions = versions
        self._deviation = metrics[GOLDEN_DEVIATION]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="golden-checks", daemon=True)

    def start(self) -> None:
        """Start the first hour; the versions that are loaded in it have just been checked."""
        self._thread.start()

    def stop(self) -> None:
        """End the checks. Does not wait."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(SECONDS):
            self.check()

    def check(self) -> None:
        """Ask all loaded versions, and report the largest deviation of each."""
        for model, version in [live.reference for live in self._versions.snapshot.live() if live.first_stage is None]:
            try:
                with self._versions.lease() as lease:  # the version stays loaded until its metric is set
                    live = lease.take(f"{model}@{version}", None, "")
                    deviation = max(self._deviations(live), default=0.0)
                    self._deviation.labels(model, version).set(deviation)
            except (ServiceError, TimeoutError) as error:  # the next check may succeed
                logger.warning("the golden questions of %s@%s were not answered: %s", model, version, error)
            else:
                if deviation > 1.0:
                    logger.error("%s@%s does not give its golden scores any more", model, version)

    def _deviations(self, live: LiveVersion) -> Iterator[float]:
        """The largest difference of each golden question's scores, divided by the tolerance."""
        for golden in live.checkpoint.golden:
            call = RankCall(
                question=golden.question,
                candidates=golden.texts,
                drop_ratio=0.0,
                priority=LAST_PRIORITY,
                windowing=None,
            )
            question = Question.read(call, live, received=time.monotonic()).begun()
            assert question.work is not None, "a version without a first stage reads pairs"
            ticket = live.engine.submit(question.work, live_traffic=LiveTraffic(lambda: live.leases > 1))
            try:
                outcome = ticket.outcome.result(LONGEST_SECONDS)
            finally:
                live.engine.cancel(ticket.key)
            if isinstance(outcome, ServiceError):
                raise outcome
            expected = np.asarray(recorded_scores(golden, live.precision))
            difference = np.abs(outcome.scores[question.prepared.places] - expected).max()
            yield float(difference) / golden_tolerance(golden, live.precision)
