"""The input of a Hugging Face teacher, and the file beside its weights that describes it.

In: pairs of question and candidate. Out: token ids by the teacher's own tokenizer. A teacher that reads context gets
`q [SEP] s [SEP] previous next`, with its own separator (SSP section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cerberank_models.config import Count, Frozen
from cerberank_models.encoding import CHARACTERS_PER_TOKEN, Candidate, replace_surrogates

FILE = "teacher.json"
Pair = tuple[str, Candidate]


class TeacherInput(Frozen):
    """How a pair becomes the teacher's input; the same in training and in scoring."""

    max_length: Count = 128
    context: bool = False
    """Read the candidate's previous and next sentence too."""

    def encode(self, tokenizer: Any, pairs: Sequence[Pair]) -> dict[str, list[list[int]]]:
        """Token ids by the name of the model's argument, one list per pair; the longer text is cut first."""
        questions = [self._text(question) for question, _ in pairs]
        answers = [self._answer(candidate, tokenizer.sep_token) for _, candidate in pairs]
        return dict(tokenizer(questions, answers, truncation="longest_first", max_length=self.max_length))

    def write(self, folder: Path) -> None:
        """Write `teacher.json` into the teacher's folder."""
        (folder / FILE).write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, teacher: str) -> TeacherInput:
        """The input of a teacher that `cerberank teach` wrote; for others, pairs of 128 tokens without context."""
        path = Path(teacher) / FILE
        return cls.model_validate_json(path.read_bytes()) if path.is_file() else cls()

    def _answer(self, candidate: Candidate, separator: str) -> str:
        text = self._text(candidate.text)
        if not self.context:
            return text
        return f"{text}{separator}{self._text(' '.join(filter(None, (candidate.previous, candidate.next))))}"

    def _text(self, text: str) -> str:
        """The part of a text that can reach the model, so that a text of megabytes is not tokenised as a whole."""
        return replace_surrogates(text[: CHARACTERS_PER_TOKEN * self.max_length])
