"""The texts of one step's triples as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from cerberank_models.network.texts import Texts
from cerberank_models.text_encoding import TextEncoder
from cerberank_papers.pairwise.triple_sampling import Triple
from cerberank_training.learning.batch import moved


@dataclass(frozen=True, slots=True)
class TripleBatch:
    """B questions and 2 B documents: positive and negative of the first question, then of the second, and so on."""

    questions: Texts
    documents: Texts
    owners: Tensor
    """`[2 B]`: the question of each document."""

    def on(self, device: torch.device) -> TripleBatch:
        """The batch on `device`."""
        questions, documents = (
            Texts(*(moved(getattr(texts, field.name), device) for field in fields(texts)))
            for texts in (self.questions, self.documents)
        )
        return TripleBatch(questions, documents, moved(self.owners, device))


def count_cut(triples: Sequence[Triple], encoder: TextEncoder) -> tuple[int, int]:
    """The number of questions and documents that do not fit, and of all of them."""
    questions = encoder.questions([triple.question for triple in triples]).truncated
    documents = encoder.candidates([text for each in triples for text in (each.positive, each.negative)]).truncated
    return int(questions.sum() + documents.sum()), len(questions) + len(documents)


def triple_batch(triples: Sequence[Triple], encoder: TextEncoder) -> TripleBatch:
    """Encode the triples on the CPU."""
    device = torch.device("cpu")
    documents = [text for triple in triples for text in (triple.positive, triple.negative)]
    return TripleBatch(
        Texts.on(device, encoder.questions([triple.question for triple in triples])),
        Texts.on(device, *encoder.documents(documents)),
        torch.arange(len(triples)).repeat_interleave(2),
    )
