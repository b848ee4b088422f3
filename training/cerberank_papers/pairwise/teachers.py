"""Teachers that run in the student's training loop: frozen, in evaluation mode, and not part of the student.

The representations of all tokens are too large to be stored beforehand. They are compared with the student's token by
token, which requires equal tokenizers and widths.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tokenizers import Tokenizer

from cerberank_models.network.text_ranker import Reading, TextRanker
from cerberank_models.text_config import TextRankerConfig
from cerberank_models.transformer import PAIR_TEMPLATES
from cerberank_papers.pairwise.triple_batch import TripleBatch
from cerberank_training.runs.computing import training_precision
from cerberank_training.runs.settings import Precision


class FrozenTeacher:
    """A text ranker that is not trained, and not a module: a student's `train()` and optimiser do not reach it."""

    def __init__(self, name: str, ranker: TextRanker, tokenizer: Tokenizer, *, precision: Precision = "fp32") -> None:
        """`name` is for messages, `precision` for the forward pass. The ranker's weights are frozen."""
        self.name = name
        self.ranker = ranker.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self._precision = precision

    @torch.no_grad()
    def read(self, batch: TripleBatch) -> Reading:
        """The teacher's output for the batch, without gradients, on the device of the batch."""
        device = batch.owners.device
        with training_precision(device, self._precision):
            return self.ranker.to(device)(batch.questions, batch.documents, batch.owners)  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True, slots=True)
class Teachers:
    """TRMD's two teachers, each optional. Without teachers, a teacher or the system TR is trained."""

    mono: FrozenTeacher | None = None
    bi: FrozenTeacher | None = None

    def check(self, student: TextRankerConfig, tokenizer: Tokenizer) -> None:
        """Raise ValueError, which names student and teacher, unless each teacher's tensors can be compared.

        Widths, tokenizers and ColBERT's projections must be equal, the rankers must be of the right kind, and the
        student's longest text must fit into the teacher.
        """
        for teacher in (self.mono, self.bi):
            if teacher is not None:
                _check_common(student, tokenizer, teacher)
        if self.mono is not None and (self.mono.ranker.config.first_ranker is None or student.first_ranker is None):
            raise ValueError(f"{self.mono.name} teaches ranker 1, which it and {student.name} must have")
        if self.bi is None:
            return
        config = self.bi.ranker.config
        if config.token_ranker is None or config.token_ranker != student.token_ranker:
            raise ValueError(
                f"{self.bi.name} has the token ranker {config.token_ranker}, {student.name} {student.token_ranker}: "
                "they must be the same"
            )
        if config.token_ranker == "colbert" and config.projection != student.projection:
            raise ValueError(
                f"{self.bi.name} projects to {config.projection}, {student.name} to {student.projection}: they "
                "must agree"
            )
        if config.encoding.colbert != student.encoding.colbert:
            marked, other = (self.bi.name, student.name) if config.encoding.colbert else (student.name, self.bi.name)
            raise ValueError(f"{marked} reads ColBERT's texts (--colbert-texts), {other} does not: both must, or none")


def _check_common(student: TextRankerConfig, tokenizer: Tokenizer, teacher: FrozenTeacher) -> None:
    have, own = teacher.ranker.config, student.transformer
    if have.transformer.hidden_size != own.hidden_size:
        raise ValueError(
            f"teacher {teacher.name} has the width {have.transformer.hidden_size}, student {student.name} "
            f"{own.hidden_size}: they must be equal"
        )
    if _content(teacher.tokenizer) != _content(tokenizer) or (
        PAIR_TEMPLATES[have.transformer.family] != PAIR_TEMPLATES[own.family]
    ):
        raise ValueError(f"teacher {teacher.name} and student {student.name} have different tokenizers")
    if student.longest > have.room:
        raise ValueError(
            f"a text of student {student.name} has up to {student.longest} tokens, teacher {teacher.name} has "
            f"{have.room} positions"
        )


def _content(tokenizer: Tokenizer) -> str:
    """The content of the tokenizer's file without truncation and padding, which text encoders switch off."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    return str(copy.to_str())
