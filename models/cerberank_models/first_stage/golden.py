"""Stand-in until the models side is merged."""

from __future__ import annotations

from collections.abc import Callable

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.first_stage.contract import VectorBackend
from cerberank_models.first_stage.encoding import FirstStageEncoder
from cerberank_models.first_stage.scorer import FirstStageScorer


def check_first_stage(
    backend: VectorBackend,
    checkpoint: Checkpoint,
    precision: str,
    encoder: FirstStageEncoder,
    scorer: FirstStageScorer,
    pause: Callable[[], None],
) -> None:
    """Check."""
