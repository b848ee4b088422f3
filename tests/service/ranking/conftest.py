"""A service on fakes whose model has a first stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend
from tests.service.first_stages import (
    FakeVectors,
    config_with_first_stage,
    load_with_first_stage,
)
from tests.service.observe import service_of, wait_until

from cerberank_service.versions.state import State

QUESTION = "how tall is it?"
TEXTS = [f"text {number} {'ab' * (number % 5)}" for number in range(20)]
BODY: dict[str, Any] = {"question": QUESTION, "candidates": TEXTS, "drop_ratio": [0.5, 0.2, 0.0]}


@dataclass
class Served:
    """A service on fakes."""

    client: TestClient
    vectors: FakeVectors
    pairs: FakeBackend

    def rank(self, **changes: Any) -> Any:
        response = self.client.post("/v1/rank", json=BODY | changes)
        assert response.status_code == 200, response.text
        return response.json()

    def samples(self) -> Mapping[str, float]:
        lines = self.client.get("/metrics").text.splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}


Open = Callable[..., Served]


@pytest.fixture
def serve_first(open_app: Serve, tmp_path: Path) -> Open:
    def start(schedule: tuple[float, ...] = (), **settings: Any) -> Served:
        config = config_with_first_stage(schedule)
        assert config.first_stage is not None
        vectors, pairs = FakeVectors(config.first_stage), FakeBackend(config)
        client = open_app(load_with_first_stage(tmp_path, vectors, pairs), **settings)
        versions = service_of(client).versions
        wait_until(lambda: versions.snapshot.state is not State.LOADING)
        assert versions.snapshot.state is State.READY, versions.snapshot.reason
        vectors.encoded.clear()
        vectors.entered.clear()
        pairs.runs.clear()
        return Served(client, vectors, pairs)

    return start
