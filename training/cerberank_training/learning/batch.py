"""The pairs of one training step, encoded and packed, with labels and teachers' scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from cerberank_models.encoding import PairEncoder, concat_pairs
from cerberank_training.data.sampling import Group
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache


@dataclass(frozen=True, slots=True)
class Batch:
    """Packed token ids of N pairs of Q questions, with labels and teachers' scores as training targets."""

    token_ids: Tensor
    type_ids: Tensor
    offsets: Tensor
    """`[N + 1]`: pair i owns the tokens `offsets[i]:offsets[i + 1]`."""
    labels: Tensor
    """`[N]`, 0 or 1."""
    questions: Tensor
    """`[Q + 1]`: question i owns the pairs `questions[i]:questions[i + 1]`."""
    teachers: Tensor
    """`[N, t]` logit differences of t teachers."""

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return len(self.labels)

    def on(self, device: torch.device) -> Batch:
        """The batch on `device`."""
        return Batch(*(moved(getattr(self, field.name), device) for field in fields(self)))


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on `device`. The copy to a GPU is made from pinned memory, so that Python need not wait for it."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def make_batch(groups: Sequence[Group], encoder: PairEncoder, teachers: Sequence[TeacherScoreCache] = ()) -> Batch:
    """Encode and pack the groups of one step on the CPU, and look up their teachers' scores."""
    pairs = concat_pairs([encoder.encode(group.question, group.candidates) for group in groups])
    sizes = np.cumsum([0, *(len(group.labels) for group in groups)])
    labels = np.asarray([label for group in groups for label in group.labels], dtype=np.float32)
    scores = np.empty((len(labels), len(teachers)), dtype=np.float32)
    for column, teacher in enumerate(teachers):
        scores[:, column] = np.concatenate([teacher.scores(group.question, group.candidates) for group in groups])
    arrays = (pairs.token_ids, pairs.type_ids, pairs.offsets, labels, sizes, scores)
    return Batch(*map(torch.from_numpy, arrays))
