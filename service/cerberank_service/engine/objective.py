"""By when the service means to answer: the sooner the smaller a question is. Pure.

A newcomer is let in when it is predicted to need at most half of what it may take; the other half is for smaller ones
that come later and overtake it. These are let in as long as they push nobody beyond what he may take.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

GRACE_SECONDS = 1.0
"""Beside the multiple of its own compute that a question may take."""
RESERVE = 0.5
"""Share of its limit that a newcomer may be predicted to take."""
MARGIN = 0.9
"""Share of its limit up to which a question may be pushed: the rest is for what cannot be predicted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """An answer within `grace` seconds and `slowdown` times what the question would take alone."""

    grace: float
    slowdown: float

    def limit(self, seconds: float, weight: float) -> float:
        """Seconds that a question of `seconds` may take; one of half the weight gets half a share, and twice the time.

        >>> Objective(grace=1.0, slowdown=5.0).limit(0.2, 1.0), Objective(grace=1.0, slowdown=5.0).limit(0.2, 0.5)
        (2.0, 4.0)
        """
        return (self.grace + self.slowdown * seconds) / weight


UNLIMITED = Objective(grace=inf, slowdown=0.0)
"""Everybody has time."""


def objective_of(slowdown: float) -> Objective:
    """The objective that the setting `objective_slowdown` states; 0 states none."""
    return Objective(grace=GRACE_SECONDS, slowdown=slowdown) if slowdown else UNLIMITED
