"""All stages of a backend, one after another."""

from __future__ import annotations

from typing import Any

import numpy as np

from cerberank_models.backends.stage_contract import Backend
from cerberank_models.encoding import EncodedPairs


def all_scores(backend: Backend[Any], pairs: EncodedPairs) -> list[np.ndarray]:
    """The probabilities of every stage, of all pairs; those of each head where a stage has heads."""
    state, scores = backend.start(pairs), []
    for stage in range(len(backend.config.stages)):
        output = backend.run(state, stage)
        scores.append(output.scores if output.head_scores is None else output.head_scores)
        state = output.state
    return scores
