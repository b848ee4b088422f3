"""Rankings by a text ranker, for choosing weights on dev data and for evaluations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from cerberank_models.backends.stage_contract import Scores
from cerberank_models.first_stage.text_ranker_folder import read_text_ranker
from cerberank_models.network.text_ranker import Side, TextRanker
from cerberank_models.network.texts import Texts
from cerberank_models.rank_pairs import NonFiniteScoreError
from cerberank_models.text_encoding import TextEncoder
from cerberank_training.data import Question
from cerberank_training.evaluation.dev_figures import RankedQuestions
from cerberank_training.evaluation.sources.rankings import RankedQuestion
from cerberank_training.evaluation.variants import flat_ranks

BATCH = 128
"""The largest number of candidates that are read at once."""


@torch.inference_mode()
def encoded_candidates(ranker: TextRanker, encoder: TextEncoder, texts: Sequence[str]) -> Side | Texts:
    """The part of the computation that does not depend on the question.

    These are the token ids of documents, and for a bi-encoder also the output of its encoder.
    """
    documents = Texts.on(_device(ranker), *encoder.documents(texts))
    # The encoder's output before ColBERT's projection is six times as large, and no score needs it.
    return documents if ranker.config.joint else replace(ranker.alone(documents, document=True), projected_from=None)


@torch.inference_mode()
def text_scores(ranker: TextRanker, encoder: TextEncoder, question: str, documents: Iterable[Side | Texts]) -> Scores:
    """The scores `[n]` of documents that are given in parts. The ranker must be in evaluation mode."""
    texts, parts = Texts.on(_device(ranker), encoder.questions([question])), []
    question_side = None if ranker.config.joint else ranker.alone(texts)
    for part in documents:
        count = len(part.windows if isinstance(part, Texts) else part.offsets) - 1
        owners = torch.zeros(count, dtype=torch.int64, device=_device(ranker))
        if isinstance(part, Texts) or question_side is None:
            parts.append(ranker(texts, part, owners).scores)
        else:
            parts.append(ranker.score(question_side.select(owners), part).scores)
    scores: Scores = torch.cat(parts).cpu().numpy()
    return scores


def text_rankings(ranker: TextRanker, encoder: TextEncoder, questions: Iterable[Question]) -> Iterator[RankedQuestion]:
    """Rank by a text ranker's scores. Raises NonFiniteScoreError, which names the question.

    Candidates that several questions share, such as an article's sentences, are read once for all these questions.
    """
    groups: dict[tuple[str, ...], list[Question]] = {}
    for question in questions:
        groups.setdefault(tuple(row.candidate.text for row in question.candidates), []).append(question)
    for texts, sharing in groups.items():
        starts = range(0, len(texts), BATCH)
        parts: Iterable[Side | Texts] = (encoded_candidates(ranker, encoder, texts[at : at + BATCH]) for at in starts)
        parts = parts if len(sharing) == 1 else list(parts)
        for question in sharing:
            scores = text_scores(ranker, encoder, question.text, parts)
            if not np.isfinite(scores).all():
                raise NonFiniteScoreError(f"question {question.id!r}: a score is not a number")
            flat = {"final": scores}
            yield RankedQuestion(question=question, ranks=flat_ranks(flat), scores=flat)


def folder_rankings(path: Path, questions: Iterable[Question], *, device: str) -> Iterator[RankedQuestion]:
    """Rank by the text ranker in a folder. Raises the errors of `read_text_ranker` before the first question."""
    saved = read_text_ranker(path)
    return text_rankings(saved.ranker.to(device), saved.encoder(), questions)


def text_ranks(encoder: TextEncoder) -> Callable[[TextRanker, Sequence[Question]], RankedQuestions]:
    """A function that ranks questions by a text ranker, for `dev_figures`."""
    return lambda ranker, questions: ((each.question, each.ranks) for each in text_rankings(ranker, encoder, questions))


def _device(ranker: TextRanker) -> torch.device:
    return ranker.get_parameter("embeddings.tokens.weight").device
