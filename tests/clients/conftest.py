"""What the tests of all clients ask; `make test-clients` runs them, each in an environment of its own."""

from __future__ import annotations

import json
import os
import urllib.request

import pytest

QUESTION = "How tall is the Eiffel Tower?"
TEXTS = [
    "It was built for the fair of 1889.",
    "The Eiffel Tower is 330 metres tall.",
    "Paris is the capital of France.",
    "Bees make honey.",
]
MODEL = "cerberank-mini"


@pytest.fixture(scope="session")
def url() -> str:
    """The service's URL, without a path."""
    return os.environ["CERBERANK_URL"]


@pytest.fixture(scope="session")
def question() -> str:
    return QUESTION


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return list(TEXTS)


@pytest.fixture(scope="session")
def model() -> str:
    return MODEL


@pytest.fixture(scope="session")
def order(url: str) -> list[int]:
    """The places of the texts, best first, as the native wire gives them."""
    body = json.dumps({"question": QUESTION, "candidates": TEXTS}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/rank", body)) as response:
        order = [result["index"] for result in json.load(response)["results"]]
    assert order[0] == 1
    return order
