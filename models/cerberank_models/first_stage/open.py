"""Stand-in until the models side is merged."""

from __future__ import annotations

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.first_stage.contract import VectorBackend
from cerberank_models.first_stage.encoding import FirstStageEncoder
from cerberank_models.first_stage.scorer import FirstStageScorer


def open_first_stage(
    checkpoint: Checkpoint, *, kind: str, precision: str, threads: int | None, device: str
) -> VectorBackend:
    """Open."""
    raise NotImplementedError


def open_encoder(checkpoint: Checkpoint) -> FirstStageEncoder:
    """Open."""
    raise NotImplementedError


def open_scorer(checkpoint: Checkpoint) -> FirstStageScorer:
    """Open."""
    raise NotImplementedError
