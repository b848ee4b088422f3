"""Rankings by a text ranker: for choosing weights on dev data, and for evaluations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from cerberank_models.backends.contract import Scores
from cerberank_models.network.text_ranker.ranker import TextRanker
from cerberank_models.network.text_ranker.texts import Texts
from cerberank_models.rank import NonFiniteScoreError
from cerberank_models.text_ranker_folder import read_text_ranker
from cerberank_models.texts.encoding import TextEncoder
from cerberank_training.data import Question
from cerberank_training.evaluation.evaluate import Evaluation, flat_ranks
from cerberank_training.evaluation.sources.rankings import RankedQuestion

BATCH = 128
"""Most candidates that are scored at once."""


@torch.inference_mode()
def text_scores(ranker: TextRanker, encoder: TextEncoder, question: str, texts: Sequence[str]) -> Scores:
    """The scores `[n]` of candidates, on the ranker's device; it must be in evaluation mode."""
    device = ranker.get_parameter("embeddings.tokens.weight").device
    asked = Texts.on(device, encoder.questions([question]))
    parts = [
        ranker(
            asked,
            Texts.on(device, encoder.documents(texts[start : start + BATCH])),
            torch.zeros(len(texts[start : start + BATCH]), dtype=torch.int64, device=device),
        ).scores
        for start in range(0, len(texts), BATCH)
    ]
    scores: Scores = torch.cat(parts).cpu().numpy()
    return scores


def text_rankings(ranker: TextRanker, encoder: TextEncoder, questions: Iterable[Question]) -> Iterator[RankedQuestion]:
    """Rank by a text ranker's scores. Raises NonFiniteScoreError, which names the question."""
    for question in questions:
        scores = text_scores(ranker, encoder, question.text, [row.candidate.text for row in question.candidates])
        if not np.isfinite(scores).all():
            raise NonFiniteScoreError(f"question {question.id!r}: a score is not a number")
        flat = {"final": scores}
        yield RankedQuestion(question=question, ranks=flat_ranks(flat), scores=flat)


def folder_rankings(path: Path, questions: Iterable[Question], *, device: str) -> Iterator[RankedQuestion]:
    """Rank by the text ranker of a folder. Raises the errors of `read_text_ranker` at once."""
    saved = read_text_ranker(path)
    return text_rankings(saved.ranker.to(device), saved.encoder(), questions)


def dev_metric(encoder: TextEncoder, questions: Sequence[Question], metric: str) -> Callable[[TextRanker], float]:
    """A function that measures `metric`, one of METRICS, on `questions`, in percent."""

    def measure(ranker: TextRanker) -> float:
        evaluation = Evaluation()
        for ranked in text_rankings(ranker, encoder, questions):
            evaluation.add(ranked.question, ranked.ranks)
        return evaluation.figures()["final"].mean[metric]

    return measure
