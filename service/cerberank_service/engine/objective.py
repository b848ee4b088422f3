"""The latency objective: the smaller a question is, the sooner it must be answered. Pure.

Admission control accepts a question when its predicted latency is at most half of its limit; the other half is reserved
for smaller questions that arrive later and overtake it. A question is refused when accepting it would make an accepted
one miss its objective.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

GRACE_SECONDS = 1.0
"""Seconds that every question may take in addition to the multiple of its own compute time."""
RESERVE = 0.5
"""Largest predicted latency of a new question, as a share of its limit."""
MARGIN = 0.9
"""Share of an accepted question's limit up to which later questions may delay it; the rest is a safety margin."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """An answer within `grace` seconds and `slowdown` times what the question would take alone."""

    grace: float
    slowdown: float

    def limit(self, seconds: float, weight: float) -> float:
        """Seconds that a question with `seconds` of compute may take; half the weight doubles the limit.

        >>> Objective(grace=1.0, slowdown=5.0).limit(0.2, 1.0), Objective(grace=1.0, slowdown=5.0).limit(0.2, 0.5)
        (2.0, 4.0)
        """
        return (self.grace + self.slowdown * seconds) / weight


UNLIMITED = Objective(grace=inf, slowdown=0.0)
"""No question is refused for its latency."""


def objective_of(slowdown: float) -> Objective:
    """The objective that the setting `objective_slowdown` states; 0 states none."""
    return Objective(grace=GRACE_SECONDS, slowdown=slowdown) if slowdown else UNLIMITED
