"""The contract of teachers, and the description of one, which can be sent to another machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cerberank_models.checkpoint.manifest import MANIFEST
from cerberank_models.checkpoint.regular import file_digest
from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_training.teachers.teacher_reader import Pair


class Teacher(Protocol):
    """A model that scores pairs."""

    def differences(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """The logit differences `d = z1 - z0`, shape [n]. The same pairs in the same order give the same result."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TeacherSpec:
    """The options that open a teacher."""

    source: str
    """A cerberank checkpoint folder, or the folder or hub id of a Hugging Face sequence classifier."""
    backend: str = "torch"
    """The backend of a checkpoint; a Hugging Face model always runs on torch."""
    precision: str = "fp32"
    device: str = "cpu"
    input: TeacherInput = TeacherInput()  # noqa: RUF009 - frozen
    """The input of a Hugging Face model. It is ignored for a checkpoint, whose config states its input."""
    batch_tokens: int = 16384
    """The largest number of tokens in a batch, padding included."""

    @property
    def is_checkpoint(self) -> bool:
        """True for a cerberank checkpoint."""
        return (Path(self.source) / MANIFEST).is_file()


def files_revision(paths: Sequence[Path]) -> str:
    """SHA-256 over the files' names and contents, independent of their order."""
    return digests_revision({path.name: file_digest(path) for path in paths})


def digests_revision(digests: Mapping[str, str]) -> str:
    """SHA-256 over the name and the SHA-256 of every file, independent of their order."""
    lines = sorted(f"{name} {digest}\n" for name, digest in digests.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()
