from __future__ import annotations

import pytest
from tests.first_stages import attached
from tests.tiny import random_checkpoint

from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Weights, fp32 and int8 graphs, no first stage."""
    return read_checkpoint(random_checkpoint(tmp_path_factory.mktemp("plain") / "checkpoint"))


@pytest.fixture(scope="session")
def checkpoint(plain: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """The same with a first stage of two rankers, ranker 1 and TwinBERT's."""
    return attached(plain, tmp_path_factory.mktemp("attached") / "checkpoint")
