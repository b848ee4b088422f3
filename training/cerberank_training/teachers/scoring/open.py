"""Opens the teacher that a `TeacherSpec` describes: a cerberank checkpoint or a Hugging Face model."""

from __future__ import annotations

from itertools import islice

from cerberank_training.data.sampling import LOOKED_AT, Group
from cerberank_training.teachers.scoring import checkpoint
from cerberank_training.teachers.scoring.scoring_run import Texts
from cerberank_training.teachers.scoring.teacher import Teacher, TeacherSpec
from cerberank_training.teachers.teacher_score_cache import TeacherIdentity


def open_teacher(spec: TeacherSpec) -> Teacher:
    """Load the teacher.

    Raises ValueError when the model cannot score pairs or lacks the precision, OSError when it does not exist.
    """
    if spec.is_checkpoint:
        return checkpoint.CheckpointTeacher(spec)
    from cerberank_training.teachers.scoring import hugging_face  # noqa: PLC0415 - a checkpoint needs no transformers

    return hugging_face.HuggingFaceTeacher(spec)


def cut_line(spec: TeacherSpec, texts: Texts, *, tokens: int) -> str:
    """A line that says how many pairs of the first questions do not fit into `tokens`; empty if all fit."""
    questions = islice(texts(), LOOKED_AT)
    groups = [Group(question=text, candidates=tuple(rows), labels=(0.0,) * len(rows)) for text, rows in questions]
    if not groups:
        return ""
    if spec.is_checkpoint:
        cut, pairs = checkpoint.cut_pairs(spec, groups)
    else:
        from cerberank_training.teachers.scoring import hugging_face  # noqa: PLC0415 - a checkpoint needs no transformers

        cut, pairs = hugging_face.cut_pairs(spec, groups)
    where = f"the first {pairs:,} pairs {cut:,} do not fit into {tokens} tokens"
    return f"of {where}, and are scored as far as they fit" if cut else ""


def teacher_identity(spec: TeacherSpec) -> TeacherIdentity:
    """The teacher's identity. The network is not loaded. Raises the errors of `open_teacher`."""
    if spec.is_checkpoint:
        return checkpoint.identity(spec)
    from cerberank_training.teachers.scoring import hugging_face  # noqa: PLC0415 - a checkpoint needs no transformers

    return hugging_face.identity(spec)
