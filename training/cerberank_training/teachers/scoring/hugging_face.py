"""Any Hugging Face cross-encoder with one or two logits as a teacher, with its own tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cerberank_models.backends.torch_stages import PRECISIONS
from cerberank_models.checkpoint.bound import SHA256
from cerberank_models.convert.source_network import read_head, read_network
from cerberank_models.convert.teacher_input import FILE as INPUT
from cerberank_training.data.sampling import Group
from cerberank_training.runs.base import open_base
from cerberank_training.runs.record import RunError, read_record
from cerberank_training.runs.summary import SELECT, spec_name
from cerberank_training.teachers.scoring.teacher import TeacherSpec, digests_revision
from cerberank_training.teachers.teacher_reader import Pair, TeacherReader
from cerberank_training.teachers.teacher_score_cache import TeacherIdentity


def identity(spec: TeacherSpec) -> TeacherIdentity:
    """A hash of the model's files, which does not depend on their folder, and the settings that the model runs with.

    Raises UnsupportedModelError if the model has fewer positions than a pair may have tokens.
    """
    open_base(spec.source).check_room(spec.input.max_length)
    return TeacherIdentity(
        name=spec.source,
        revision=revision_of(spec.source),
        precision=f"torch/{spec.precision}",
        max_length=spec.input.max_length,
        context=spec.input.context,
    )


def revision_of(source: str) -> str:
    """A hash of the weights, configuration and tokenizer of a folder or of a model on the hub.

    Raises SourceError for a model that cannot be found.
    """
    digests = open_base(source).content()[SHA256]
    return digests_revision({name: digest for name, digest in digests.items() if name != INPUT})


def cut_pairs(spec: TeacherSpec, groups: Sequence[Group]) -> tuple[int, int]:
    """The number of pairs that do not fit, and of all pairs; the network is not loaded."""
    base = open_base(spec.source)
    return TeacherReader(base.tokenizer(), base.described, spec.input).count_cut(groups)


def teacher_origin(teacher: TeacherIdentity) -> dict[str, Any]:
    """The teacher's name and revision, and its MAP on its dev set if its folder still exists and records one."""
    folder = Path(teacher.name)
    origin = {"name": folder.name, "revision": teacher.revision}
    try:
        record = read_record(folder)
    except RunError:  # of an earlier version; the teacher can be used all the same
        return origin
    if (
        record is None
        or not record.results
        or SELECT in record.bound["dev"]
        or revision_of(str(folder)) != teacher.revision
    ):
        return origin
    best, questions = record.results["best"], record.results["questions"]
    return origin | {"dev_map": best, "questions": questions, "dev": spec_name(record.free["names"]["dev"])}


class HuggingFaceTeacher:
    """Scores pairs in batches of similar length."""

    def __init__(self, spec: TeacherSpec) -> None:
        """Load model and tokenizer, from the hub when `spec.source` is not a folder.

        Raises ValueError for a model without one or two logits, and for a precision that torch does not have.
        """
        if spec.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, not {spec.precision!r}")
        base = open_base(spec.source)
        base.files()  # downloads those that the cache lacks
        tokenizer = base.tokenizer()
        model = read_network(base.source, base.described, read_head(base.source, base.described))
        if model.config.num_labels not in (1, 2):
            raise ValueError(f"{spec.source} has {model.config.num_labels} labels; a teacher has one or two")
        self._device = torch.device(spec.device)
        self._model = model.to(device=self._device, dtype=PRECISIONS[spec.precision]).eval()
        self._read = TeacherReader(tokenizer, model.config, spec.input)
        self._batch_tokens = spec.batch_tokens

    def differences(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """`z1 - z0` of two logits, or the single logit itself."""
        return differences(self._model, self._read, pairs, device=self._device, batch_tokens=self._batch_tokens)


@torch.inference_mode()
def differences(
    model: Any, read: TeacherReader, pairs: Sequence[Pair], *, device: torch.device, batch_tokens: int
) -> NDArray[np.float32]:
    """`z1 - z0` of a classifier of two logits, or the single logit itself, in batches of pairs of similar length."""
    encoded = read(pairs)
    result = np.empty(len(pairs), dtype=np.float32)
    for rows in _batches([len(ids) for ids in encoded["input_ids"]], batch_tokens):
        inputs = read.padded({name: [values[row] for row in rows] for name, values in encoded.items()})
        logits = model(**{name: tensor.to(device) for name, tensor in inputs.items()}).logits
        result[rows] = logit_difference(logits).cpu().numpy()
    return result


def _batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """The rows of each padded batch. The longest come first, so that a lack of memory is found at once."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    start = 0
    while start < len(order):
        room = max(1, batch_tokens // max(1, lengths[order[start]]))
        yield order[start : start + room]
        start += room


def logit_difference(logits: Tensor) -> Tensor:
    """Convert `logits[N, 1 or 2]` to `d[N]` in fp32: `z1 - z0` for two logits, or the single logit itself."""
    logits = logits.float()
    return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
