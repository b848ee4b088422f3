from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint


@pytest.fixture(scope="session")
def plain(tiny_checkpoint: Path) -> Checkpoint:
    """Weights, fp32 and int8 graphs, no first stage."""
    return read_checkpoint(tiny_checkpoint)


@pytest.fixture(scope="session")
def checkpoint(with_first_stage: Callable[[str], Checkpoint]) -> Checkpoint:
    """The same with a first stage of two rankers, ranker 1 and TwinBERT's."""
    return with_first_stage("tr-twin")
