"""A cerberank checkpoint as a teacher, in any backend that implements the stage contract."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.registry import open_backend
from cerberank_models.backends.stage_contract import Scores
from cerberank_models.checkpoint.folder import MANIFEST, read_checkpoint
from cerberank_models.encoding import EncodedPairs, concat_pairs
from cerberank_training.data.sampling import Group, count_cut
from cerberank_training.teachers.scoring.teacher import TeacherSpec, files_revision
from cerberank_training.teachers.teacher_reader import Pair
from cerberank_training.teachers.teacher_score_cache import TeacherIdentity

LARGEST = 36.0
"""The largest logit: above it a float64 probability rounds to 1.0, whose logit is infinite."""


def identity(spec: TeacherSpec) -> TeacherIdentity:
    """The hash of the checkpoint's manifest, which has the hashes of all other files, with backend and precision."""
    checkpoint = read_checkpoint(Path(spec.source))
    return TeacherIdentity(
        name=f"{checkpoint.config.name} {checkpoint.manifest.version}",
        revision=files_revision([checkpoint.path / MANIFEST]),
        precision=f"{spec.backend}/{spec.precision}",
        max_length=checkpoint.config.encoding.max_length,
        context=checkpoint.config.encoding.segments == 3,
    )


def cut_pairs(spec: TeacherSpec, groups: Sequence[Group]) -> tuple[int, int]:
    """The number of pairs that do not fit, and of all pairs."""
    return count_cut(groups, read_checkpoint(Path(spec.source)).encoder())


class CheckpointTeacher:
    """Scores pairs with all stages of a ranker, without drops."""

    def __init__(self, spec: TeacherSpec) -> None:
        """Verify and open the checkpoint. Raises CheckpointError when it lacks what `spec` asks for."""
        checkpoint = read_checkpoint(Path(spec.source))
        self._batch_tokens = spec.batch_tokens
        self._encoder = checkpoint.encoder()
        self._backend = open_backend(checkpoint, kind=spec.backend, precision=spec.precision, device=spec.device)

    def differences(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """The logits of the final scores; with several heads, the logits of their mean probability (CERBERUS eq. 5)."""
        scores: list[Scores] = []
        waiting: list[EncodedPairs] = []
        for question, group in groupby(pairs, key=lambda pair: pair[0]):
            waiting.append(self._encoder.encode(question, [candidate for _, candidate in group]))
            if sum(part.tokens for part in waiting) >= self._batch_tokens:
                scores.append(self._run(waiting))
                waiting = []
        if waiting:
            scores.append(self._run(waiting))
        return logit(np.concatenate(scores))

    def _run(self, parts: list[EncodedPairs]) -> Scores:
        state = self._backend.start(concat_pairs(parts))
        for stage in range(len(self._backend.config.stages)):
            output = self._backend.run(state, stage)
            state = output.state
        return output.scores


def logit(probabilities: Scores) -> NDArray[np.float32]:
    """`log(p / (1 - p))` within +-36; NaN stays NaN.

    >>> logit(np.array([0.5, 1.0, 0.0, 0.75])).round(4).tolist()
    [0.0, 36.0, -36.0, 1.0986000299453735]
    """
    with np.errstate(divide="ignore"):
        difference = np.log(probabilities) - np.log1p(-probabilities)
    return np.asarray(np.clip(difference, -LARGEST, LARGEST), dtype=np.float32)
