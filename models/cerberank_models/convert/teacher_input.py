"""The input of a Hugging Face teacher: the file `teacher.json`, which `train teach` writes beside its weights."""

from __future__ import annotations

from pathlib import Path

from cerberank_models.config import EncodingConfig
from cerberank_models.transformer import Count, Frozen

FILE = "teacher.json"
SPECIAL_TOKENS = 7
"""Most special tokens of a pair: RoBERTa's, with context."""


class TeacherInput(Frozen):
    """The rules that turn a pair into the teacher's input; the same in training, in scoring, and in the checkpoint it
    becomes.
    """

    max_length: Count = 128
    context: bool = False
    """Read the candidate's previous and next sentence too."""

    def encoding(self) -> EncodingConfig:
        """The encoding of these pairs: a pair that is too long loses the ends of its longest segments.

        Raises ValueError when `max_length` leaves no room for a question and a candidate.
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
        """Write `teacher.json` into the teacher's folder."""
        (folder / FILE).write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, teacher: str) -> TeacherInput:
        """The input of a teacher that `train teach` wrote; for others, pairs of 128 tokens without context."""
        path = Path(teacher) / FILE
        return cls.model_validate_json(path.read_bytes()) if path.is_file() else cls()
