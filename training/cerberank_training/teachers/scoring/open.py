"""Opens the teacher that a `TeacherSpec` describes: a cerberank checkpoint or a Hugging Face model."""

from __future__ import annotations

from cerberank_training.teachers.scoring import checkpoint
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


def teacher_identity(spec: TeacherSpec) -> TeacherIdentity:
    """The teacher's identity. The network is not loaded. Raises the errors of `open_teacher`."""
    if spec.is_checkpoint:
        return checkpoint.identity(spec)
    from cerberank_training.teachers.scoring import hugging_face  # noqa: PLC0415 - a checkpoint needs no transformers

    return hugging_face.identity(spec)
