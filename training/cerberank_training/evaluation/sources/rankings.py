"""The sources of rankings for an evaluation: a checkpoint, a running service, a file of scores, a teacher's scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol

import httpx
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from cerberank_models.backends.stage_contract import Scores, probability
from cerberank_models.connection import open_client
from cerberank_models.drop import RatioSchedule
from cerberank_models.encoding import Candidate
from cerberank_models.ranker import Ranker
from cerberank_models.request import RankRequest
from cerberank_models.transformer import Frozen
from cerberank_models.windows import AS_SERVED, Windowing
from cerberank_training.data import DataError, Question
from cerberank_training.data.question import parse_line, read_lines
from cerberank_training.evaluation.calibration_fit import Scored, first_result
from cerberank_training.evaluation.first_results import FirstResult
from cerberank_training.evaluation.question_metrics import ranks_of
from cerberank_training.evaluation.variants import (
    Dropping,
    Ranks,
    Scorer,
    dropping_ranks,
    flat_ranks,
    flat_scores,
    score_questions,
)


class TeacherScores(Protocol):
    """Scores that a teacher computed beforehand; as the cache of `teachers/teacher_score_cache.py` has them."""

    def scores(self, question: str, candidates: Sequence[Candidate]) -> NDArray[np.float32]:
        """One logit difference d = z1 - z0 per candidate; raises an error for a pair that was never scored."""


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
    policies: Sequence[Dropping] = (),
    windowing: Windowing | None = AS_SERVED,
) -> Iterator[RankedQuestion]:
    """Rank with every exit, head and drop policy. Raises the errors of `score_questions`."""
    scorer = Scorer(
        backend=ranker.backend, encoder=ranker.checkpoint.encoder(), first=ranker.first_stage, windowing=windowing
    )
    calibration = ranker.checkpoint.calibration
    curves = None if calibration is None else calibration.stages
    for question, scores in score_questions(scorer, questions):
        flat = flat_scores(scores)
        yield RankedQuestion(
            question=question,
            ranks=flat_ranks(flat) | dropping_ranks(scores, policies),
            scores=flat,
            first=first_result(curves, Scored.of(question, scores)),
            in_windows=scores.in_windows,
            truncated=scores.truncated,
        )


def service_rankings(
    url: str, questions: Iterable[Question], *, schedule: RatioSchedule | None = None, windows: str | None = None
) -> Iterator[RankedQuestion]:
    """Rank by the answers of a running service to `POST /v1/rank`, and by the scores of its heads.

    Raises httpx.HTTPStatusError when the service rejects a question, ValueError for a URL or a proxy that cannot be
    used, and DataError for a question that no service accepts.
    """
    with open_client(url, timeout=300.0) as client:
        for question in questions:
            yield _served(client, question, schedule, windows)


def file_rankings(path: Path, questions: Iterable[Question]) -> Iterator[RankedQuestion]:
    """Rank by the scores of another system, `{"id": "...", "scores": [0.3, ...]}` in a line for each question.

    `id` is the question's id (the line number for `jsonl` data without ids), and `scores` are in the order of the
    candidates. Raises DataError with file and line for a malformed line, a score that is not a finite number, a
    repeated question, and a wrong number of scores; also raises DataError for a question without scores.
    """
    lines = _read_scores(path)
    for question in questions:
        if question.id not in lines:
            raise DataError(f"{path} has no scores for question {question.id!r}")
        number, scores = lines[question.id]
        if len(scores) != len(question.candidates):
            raise DataError(
                f"{path}:{number}: {len(scores)} scores for the {len(question.candidates)} candidates of "
                f"question {question.id!r}"
            )
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


def _served(
    client: httpx.Client, question: Question, schedule: RatioSchedule | None, windows: str | None
) -> RankedQuestion:
    candidates = [row.candidate for row in question.candidates]
    try:
        drops: dict[str, Any] = {}
        if schedule is not None:
            drops = {"drop_ratio": schedule.ratios, "lexical_ratio": schedule.lexical}
        request = RankRequest.of(question.text, candidates, return_heads=True, windows=windows, **drops)
    except ValueError as error:
        raise DataError(f"question {question.id!r}: {error}") from error
    answer = client.post("/v1/rank", json=request.body()).raise_for_status().json()
    results = answer["results"]
    by_candidate = sorted(results, key=lambda result: result["index"])
    stages = np.asarray([result["stage"] for result in by_candidate])
    # Calibrated scores of two candidates may be equal although the network's scores differ.
    scores = [result.get("raw_score", result.get("lexical_score", result["score"])) for result in by_candidate]
    ranks = {"final": ranks_of(np.asarray(scores), stages)}
    heads = [result.get("heads") for result in by_candidate]
    if all(heads):
        for head, scores in enumerate(np.asarray(heads, dtype=np.float64).T):
            ranks[f"head {head + 1}"] = ranks_of(scores)
    best = results[0]
    first = FirstResult(
        best["score"],
        right=question.labels[best["index"]] > 0,
        answered=any(question.labels),
        answerable=best["score"] if answer.get("answerable") is None else answer["answerable"],
    )
    return RankedQuestion(question=question, ranks=ranks, first=first)


class _Line(Frozen):
    """A line of a file of scores."""

    id: str
    scores: tuple[Annotated[float, Field(allow_inf_nan=False)], ...]


def _read_scores(path: Path) -> dict[str, tuple[int, Scores]]:
    """The number of the line and the scores of each question, by the question's id."""
    lines: dict[str, tuple[int, Scores]] = {}
    for number, line in read_lines(path):
        parsed = parse_line(_Line, path, number, line)
        if parsed.id in lines:
            raise DataError(f"{path}:{number}: question {parsed.id!r} comes twice")
        lines[parsed.id] = number, np.asarray(parsed.scores, dtype=np.float64)
    return lines
