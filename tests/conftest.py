"""Fixtures that several folders share."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest
from tests.tiny import random_checkpoint

# A busy machine is no failure: nothing here is timed.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with random weights; read-only for every test."""
    return random_checkpoint(tmp_path_factory.mktemp("checkpoints") / "random-tiny")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Third-party data beside the project; tests that need it skip where it is absent."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the data folder beside the project is absent")
    return SHARED / "data"
