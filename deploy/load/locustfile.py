"""Load for a try-out: users who each ask about some hundred candidates, with some duplicates and some too long ones.

Settings: LOAD_CANDIDATES, the mean number of candidates of a question (default 100).
"""

from __future__ import annotations

import os
import random

from locust import HttpUser, between, task

CANDIDATES = int(os.environ.get("LOAD_CANDIDATES", "100"))
WORDS = ("the", "a", "of", "in", "was", "built", "tower", "river", "metres", "year", "city", "map", "water", "people")


class Asker(HttpUser):
    """Asks, reads for a second or two, asks again."""

    wait_time = between(0.5, 2.0)

    @task(9)
    def ask(self) -> None:
        """A question without further wishes."""
        self._rank({})

    @task(1)
    def ask_in_a_hurry(self) -> None:
        """One with a deadline and a drop ratio."""
        self._rank({"deadline_ms": 200, "drop_ratio": 0.4})

    def _rank(self, options: dict[str, float]) -> None:
        count = max(1, round(random.expovariate(1 / CANDIDATES)))
        body = {"question": _words(8) + "?", "candidates": [_words(random.randint(5, 60)) for _ in range(count)]}
        self.client.post("/v1/rank", json=body | options, name="/v1/rank")


def _words(count: int) -> str:
    return " ".join(random.choices(WORDS, k=count))
