"""Running services for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.process import Process, serving


@pytest.fixture
def service(tiny_checkpoint: Path, tmp_path: Path) -> Iterator[Process]:
    """A service of its own for each test, which may stop it and count what it has answered."""
    with serving(tiny_checkpoint, tmp_path / "log", CERBERANK_ALIASES="rerank-v3.5") as running:
        yield running


@pytest.fixture(scope="session")
def shared_service(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One service for all tests of a worker that do nothing but ask; the rest take `service`."""
    log = tmp_path_factory.mktemp("shared-service") / "log"
    with serving(tiny_checkpoint, log, CERBERANK_ALIASES="rerank-v3.5") as running:
        yield running
