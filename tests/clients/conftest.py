"""The questions and examples of clients' tests; `make test-clients` runs them, each in an environment of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


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

    def example(self, name: str) -> str:
        """The output of a program of examples/ that asks the service."""
        command, environment = [sys.executable, ROOT / "examples" / name], os.environ | {"CERBERANK_URL": self.url}
        return subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout

    def run_block(self, page: str, beginning: str) -> dict[str, Any]:
        """The names after the Python block of docs/PAGE with this beginning, which asks the service."""
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
        (program,) = (block for block in blocks if block.startswith(beginning))
        names: dict[str, Any] = {}
        exec(program.replace("http://127.0.0.1:8000", self.url), names)
        return names


@pytest.fixture(scope="session")
def task() -> Task:
    url = os.environ["CERBERANK_URL"]
    body = json.dumps({"question": Task.question, "candidates": Task.texts}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/rank", body)) as response:
        order = [result["index"] for result in json.load(response)["results"]]
    assert order[0] == 1
    return Task(url=url, order=order)
