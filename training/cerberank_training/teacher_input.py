"""What a Hugging Face teacher reads of a pair, and the file beside its weights that says so.

In: question, candidate with context, title. Out: the two texts for the teacher's own tokenizer. A teacher that reads
context sees `q [SEP] s [SEP] title previous next` with its own separator (SSP section 3).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from cerberank_models.config import Frozen
from cerberank_models.encoding import Candidate

FILE = "teacher.json"


class TeacherInput(Frozen):
    """How a pair becomes the teacher's input."""

    max_length: Annotated[int, Field(ge=8)] = 128
    context: bool = False
    """Read the candidate's neighbours and the document's title too."""

    def encode(self, tokenizer: Any, rows: list[tuple[str, Candidate, str]]) -> Any:
        """A padded PyTorch batch of `rows` (question, candidate, title); the longer text is cut first."""
        second = [self._second(candidate, title, tokenizer.sep_token) for _, candidate, title in rows]
        return tokenizer(
            [question for question, _, _ in rows],
            second,
            truncation="longest_first",
            max_length=self.max_length,
            padding=True,
            return_tensors="pt",
        )

    def _second(self, candidate: Candidate, title: str, separator: str) -> str:
        if not self.context:
            return candidate.text
        around = " ".join(part for part in (title, candidate.previous, candidate.next) if part)
        return f"{candidate.text} {separator} {around}"

    def write(self, folder: Path) -> None:
        """Write `teacher.json` into the teacher's folder."""
        (folder / FILE).write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, teacher: str) -> TeacherInput:
        """Of a folder that `cerberank teach` wrote; plain pairs of 128 tokens for any other path or hub id."""
        path = Path(teacher) / FILE
        return cls.model_validate_json(path.read_bytes()) if path.is_file() else cls()
