"""The questions of all clients' tests; `make test-clients` runs them, each in an environment of its own."""

from __future__ import annotations

import json
import os
import urllib.request
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Task:
    """A question and texts to rank, with the order that the native wire gives them."""

    url: str
    """The service's, without a path."""
    order: list[int]
    question: str = "How tall is the Eiffel Tower?"
    texts: tuple[str, ...] = (
        "It was built for the fair of 1889.",
        "The Eiffel Tower is 330 metres tall.",
        "Paris is the capital of France.",
        "Bees make honey.",
    )
    model: str = "cerberank-mini"

    @property
    def documents(self) -> list[str]:
        """The texts as a list, which most clients take."""
        return list(self.texts)

    @property
    def ranked(self) -> list[str]:
        """The texts, best first."""
        return [self.texts[place] for place in self.order]


@pytest.fixture(scope="session")
def task() -> Task:
    url = os.environ["CERBERANK_URL"]
    body = json.dumps({"question": Task.question, "candidates": Task.texts}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/rank", body)) as response:
        order = [result["index"] for result in json.load(response)["results"]]
    assert order[0] == 1
    return Task(url=url, order=order)
