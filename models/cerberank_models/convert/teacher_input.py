"""The input of a Hugging Face teacher: the file `teacher.json`, which `train teach` writes beside its weights."""

from __future__ import annotations

from pathlib import Path

from cerberank_models.config import EncodingConfig
from cerberank_models.transformer import Count, Frozen

FILE = "teacher.json"
SPECIAL_TOKENS = 7
"""The most special tokens of a pair: those of RoBERTa with context."""


class TeacherInput(Frozen):
    """The rules by which a pair is made into a teacher's input, in training, in scoring, and in a checkpoint of it."""

    max_length: Count = 128
    context: bool = False
    """Read the candidate's previous and next sentence too."""

    def encoding(self) -> EncodingConfig:
        """The encoding of these pairs, which cuts the longest segments of a pair that is too long.

        Raises ValueError if `max_length` leaves no room for a question and a candidate.
        """
        if self.max_length <= SPECIAL_TOKENS:
            raise ValueError(f"max_length must be more than {SPECIAL_TOKENS}, not {self.max_length}")
        return EncodingConfig(
            max_length=self.max_length,
            question_length=self.max_length - SPECIAL_TOKENS,
            truncation="longest_first",
            segments=3 if self.context else 2,
        )

    def write(self, folder: Path) -> None:
        """Write `teacher.json` to the teacher's folder."""
        (folder / FILE).write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, teacher: str) -> TeacherInput:
        """The input of a teacher that `train teach` wrote; for other models, pairs of 128 tokens without context."""
        path = Path(teacher) / FILE
        return cls.model_validate_json(path.read_bytes()) if path.is_file() else cls()
