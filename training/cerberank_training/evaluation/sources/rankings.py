"""The sources of rankings for an evaluation: a checkpoint, a running service, a file of scores, a teacher's scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cerberank_models.backends.contract import Scores, probability
from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.drop import DropPolicy
from cerberank_models.ranker import Ranker
from cerberank_models.windows import AS_SERVED, Windowing
from cerberank_training.data import Question
from cerberank_training.evaluation.calibrate import Scored, first_result
from cerberank_training.evaluation.evaluate import (
    Ranks,
    dropping_ranks,
    flat_ranks,
    flat_scores,
    score_questions,
)
from cerberank_training.evaluation.first_results import FirstResult
from cerberank_training.evaluation.sources.given_scores import given_scores
from cerberank_training.evaluation.sources.remote import rank_remotely

if TYPE_CHECKING:  # imports torch, which an evaluation with ONNX does not need
    from cerberank_training.learning.batch import TeacherScores


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedQuestion:
    """A question with the ranks of its candidates by each variant."""

    question: Question
    ranks: dict[str, Ranks]
    scores: dict[str, Scores] = field(default_factory=dict)
    """The scores of variants without drops; with drops, scores of candidates are not comparable."""
    judgements: str | None = None
    """As in `QuestionRecord`."""
    first: FirstResult | None = None
    """The first result with the score in the ranker's answer; None if scores are not probabilities."""
    in_windows: int = 0
    """As in `AllScores`."""
    truncated: int = 0
    """As in `AllScores`."""


def ranker_rankings(
    ranker: Ranker,
    questions: Iterable[Question],
    *,
    policies: Sequence[DropPolicy] = (),
    windowing: Windowing | None = AS_SERVED,
) -> Iterator[RankedQuestion]:
    """Rank with every exit, head and drop policy. Raises the errors of `score_questions`."""
    encoder = ranker.checkpoint.encoder()
    for question, scores in score_questions(
        ranker.backend, encoder, questions, ranker.first_stage, windowing=windowing
    ):
        flat = flat_scores(scores)
        yield RankedQuestion(
            question=question,
            ranks=flat_ranks(flat) | dropping_ranks(scores, policies),
            scores=flat,
            first=first_result(ranker.checkpoint.calibration, Scored.of(question, scores)),
            in_windows=scores.in_windows,
            truncated=scores.truncated,
        )


def precision_rankings(
    checkpoint: Checkpoint,
    questions: list[Question],
    *,
    kind: str,
    precision: str,
    device: str = "cpu",
    against: str,
    windowing: Windowing | None = AS_SERVED,
) -> Iterator[RankedQuestion]:
    """Rank by the final stage in two precisions. The ranking `final` has `precision`; the other is named `against`."""
    encoder = checkpoint.encoder()
    first, second = (
        score_questions(
            open_backend(checkpoint, kind=kind, precision=name, device=device), encoder, questions, windowing=windowing
        )
        for name in (precision, against)
    )
    for (question, ours), (_, others) in zip(first, second, strict=True):
        ranks = flat_ranks({"final": ours.stages[-1], against: others.stages[-1]})
        yield RankedQuestion(question=question, ranks=ranks, in_windows=ours.in_windows, truncated=ours.truncated)


def service_rankings(
    url: str, questions: Iterable[Question], *, schedule: tuple[float, ...] | None = None, windows: str | None = None
) -> Iterator[RankedQuestion]:
    """Rank by a service's answers, and by its heads. Raises the errors of `rank_remotely`."""
    for question, ranks, first in rank_remotely(url, questions, drop_ratio=schedule, windows=windows):
        yield RankedQuestion(question=question, ranks=ranks, first=first)


def given_rankings(path: Path, questions: Iterable[Question]) -> Iterator[RankedQuestion]:
    """Rank by a file of scores. Raises DataError as `given_scores` does."""
    for question, scores in given_scores(path, questions):
        flat = {"final": scores}
        yield RankedQuestion(question=question, ranks=flat_ranks(flat), scores=flat)


def teacher_rankings(teacher: TeacherScores, questions: Iterable[Question]) -> Iterator[RankedQuestion]:
    """Rank by a teacher's stored scores. For a pair without a score it raises the error of `teacher`.

    Candidates are ordered by logit differences, and their scores are the probabilities.
    """
    for question in questions:
        logits = teacher.scores(question.text, [row.candidate for row in question.candidates]).astype(np.float64)
        scores = {"final": probability(logits)}
        yield RankedQuestion(question=question, ranks=flat_ranks({"final": logits}), scores=scores)
