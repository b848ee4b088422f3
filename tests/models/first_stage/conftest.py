from __future__ import annotations

from pathlib import Path

import pytest
from tests.first_stages import attached

from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint


@pytest.fixture(scope="session")
def plain(tiny_checkpoint: Path) -> Checkpoint:
    """Weights, fp32 and int8 graphs, no first stage."""
    return read_checkpoint(tiny_checkpoint)


@pytest.fixture(scope="session")
def checkpoint(plain: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """The same with a first stage of two rankers, ranker 1 and TwinBERT's."""
    return attached(plain, tmp_path_factory.mktemp("attached") / "checkpoint")
