"""Simulates weighted processor sharing, to find out when each question would end if all were served at once.

Serving questions one after another in the order of these fair ends finishes none of them later than processor sharing
would (the fair sojourn protocol, Friedman and Henderson 2003), and most of them much earlier. A small question
overtakes large ones. A stream of small questions cannot starve a large one, because the large one's fair end is fixed
while the fair ends of later arrivals move on. Bodies that wait to be read (`ranking/workers`) are ordered in the same
way.
"""

from __future__ import annotations

import heapq


class FairClock:
    """Virtual time, which advances by the work done, divided by the total weight of the questions that still share."""

    def __init__(self) -> None:
        """The clock starts at zero, without questions."""
        self._now = 0.0
        self._weights: dict[int, float] = {}
        self._ends: list[tuple[float, int]] = []
        self._total = 0.0

    def enter(self, question: int, work: float, weight: float) -> float:
        """Add a question with `work` in all; returns its fair end, which is meaningful only in comparisons."""
        end = self.end_of(work, weight)
        self._weights[question] = weight
        self._total += weight
        heapq.heappush(self._ends, (end, question))
        return end

    def end_of(self, work: float, weight: float) -> float:
        """The value that `enter` would return now."""
        return self._now + work / weight

    def leave(self, question: int) -> None:
        """Remove a question that was abandoned before its answer.

        A question that was answered stays until its fair end, so that its share is not given to others twice.
        """
        self._total -= self._weights.pop(question, 0.0)

    def serve(self, work: float) -> None:
        """Advance the clock by `work` that was done for any of the questions."""
        while self._ends and work > 0.0:
            end, question = self._ends[0]
            if question in self._weights:
                needed = (end - self._now) * self._total
                if needed > work:
                    self._now += work / self._total
                    return
                work -= max(0.0, needed)
                self._now = max(self._now, end)
                self.leave(question)
            heapq.heappop(self._ends)

    def clear(self) -> None:
        """Reset the clock when no question is left, so that past questions have no effect on later ones."""
        self._weights.clear()
        self._ends.clear()
        self._total = 0.0
