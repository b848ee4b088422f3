"""Processor sharing, imagined: when would each question end if all were served at once, by weight? Pure.

Serving questions one after another in the order of those ends lets none of them end later than sharing would (the
fair sojourn protocol, Friedman and Henderson 2003), and most of them much earlier. A small question overtakes large
ones; a stream of small ones cannot hold a large one back for ever, because its end stands and theirs move on.
"""

from __future__ import annotations

import heapq


class FairClock:
    """Virtual time: it advances by the work done, divided by the weights of the questions that still share."""

    def __init__(self) -> None:
        """At zero, and shared by nobody."""
        self._now = 0.0
        self._weights: dict[int, float] = {}
        self._ends: list[tuple[float, int]] = []
        self._total = 0.0

    def enter(self, question: int, work: float, weight: float) -> float:
        """A question with `work` in all begins to share; returns its end, which is for comparison alone."""
        end = self.end_of(work, weight)
        self._weights[question] = weight
        self._total += weight
        heapq.heappush(self._ends, (end, question))
        return end

    def end_of(self, work: float, weight: float) -> float:
        """What `enter` would return now."""
        return self._now + work / weight

    def leave(self, question: int) -> None:
        """A question was given up: it claims no more.

        One that was answered stays until its imagined end: what it got early is not given to others twice.
        """
        self._total -= self._weights.pop(question, 0.0)

    def serve(self, work: float) -> None:
        """`work` was done, for whomever."""
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
        """Nobody is left: the past does not count against the next ones."""
        self._weights.clear()
        self._ends.clear()
        self._total = 0.0
