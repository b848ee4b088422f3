"""A steady load: questions at a fixed rate, whether earlier ones are answered or not; each answer is recorded."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from tools.pace import asking

CONNECTIONS = 16
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The outcome of one question; times are of the monotonic clock."""

    due: float
    """When it was to be asked."""
    done: float
    status: int
    """0: no answer came."""
    version: str
    order: tuple[int, ...]

    @property
    def milliseconds(self) -> float:
        """The time since the question was due, so that waiting for a connection counts."""
        return 1000.0 * (self.done - self.due)


@dataclass
class Load:
    """Asks `url` `rate` questions a second."""

    url: str
    body: dict[str, Any]
    rate: float
    answers: list[Answer] = field(default_factory=list)

    def running(self) -> AbstractContextManager[None]:
        """Ask while the block lasts; every question that was asked has its answer when it ends."""
        return asking(self.url, self.rate, self._ask, connections=CONNECTIONS, patience=PATIENCE_SECONDS)

    def _ask(self, client: httpx.Client, due: float, number: int) -> None:
        status, content = 0, {}
        try:
            response = client.post("/v1/rank", json=self.body)
            status, content = response.status_code, response.json()
        except (httpx.HTTPError, ValueError):
            pass
        self.answers.append(
            Answer(
                due=due,
                done=time.monotonic(),
                status=status,
                version=str(content.get("version", "")),
                order=tuple(result["index"] for result in content.get("results", ())),
            )
        )


def percentile(answers: Sequence[Answer], percent: float) -> float:
    """A percentile of the answers' milliseconds; NaN without answers."""
    return float(np.percentile([answer.milliseconds for answer in answers], percent)) if answers else float("nan")
